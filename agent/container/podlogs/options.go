package podlogs

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Options say what to read of a log. The zero value is all of it that is
// there now, without timestamps.
type Options struct {
	// Follow waits for more at the end.
	Follow bool
	// Tail is how many of the last lines to begin with; nil is all.
	Tail *int64
	// Since leaves out lines written before it, by the clock of their time;
	// zero leaves out none.
	Since time.Time
	// Timestamps writes each line's time before it: RFC 3339, UTC, with
	// nanoseconds.
	Timestamps bool
	// LimitBytes ends the output after that many bytes, even within a line;
	// nil is no limit.
	LimitBytes *int64
	// Stream is v1.LogStreamStdout or v1.LogStreamStderr for one of the two;
	// "" or v1.LogStreamAll is both.
	Stream string
}

// FromPodLogOptions reads the API's options, with the API's own rules
// (pkg/apis/core/validation: ValidatePodLogOptions). Container, Previous and
// InsecureSkipTLSVerifyBackend are the caller's to heed. now is the time
// that sinceSeconds counts from.
func FromPodLogOptions(in *v1.PodLogOptions, now time.Time) (Options, error) {
	o := Options{Follow: in.Follow, Timestamps: in.Timestamps, Tail: in.TailLines, LimitBytes: in.LimitBytes}
	if in.SinceSeconds != nil && in.SinceTime != nil {
		return o, errors.New("sinceSeconds and sinceTime: only one of them may be given")
	}
	if in.SinceSeconds != nil {
		if *in.SinceSeconds < 1 {
			return o, fmt.Errorf("sinceSeconds: %d is less than 1", *in.SinceSeconds)
		}
		o.Since = now.Add(-time.Duration(min(*in.SinceSeconds, maxSinceSeconds)) * time.Second)
	}
	if in.SinceTime != nil {
		o.Since = in.SinceTime.Time
	}
	if in.Stream != nil {
		o.Stream = *in.Stream
	}
	return o, o.validate()
}

// maxSinceSeconds keeps time.Duration from overflowing: a hundred years.
const maxSinceSeconds = 100 * 365 * 24 * 3600

func (o *Options) validate() error {
	if o.Tail != nil && *o.Tail < 0 {
		return fmt.Errorf("number of last lines: %d is negative", *o.Tail)
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		return fmt.Errorf("limit of bytes: %d is less than 1", *o.LimitBytes)
	}
	switch o.Stream {
	case "", v1.LogStreamAll, v1.LogStreamStdout, v1.LogStreamStderr:
		return nil
	}
	return fmt.Errorf("stream: %q is none of %s, %s, %s", o.Stream, v1.LogStreamAll, v1.LogStreamStdout, v1.LogStreamStderr)
}

// wanted says which streams are to be shown.
func (o *Options) wanted() [streams]bool {
	return [streams]bool{stdout: o.Stream != v1.LogStreamStderr, stderr: o.Stream != v1.LogStreamStdout}
}
