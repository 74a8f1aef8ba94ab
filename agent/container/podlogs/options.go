package podlogs

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Options select what to read of a log. The zero value selects the whole
// current content, without timestamps.
type Options struct {
	// Follow waits for more lines at the end.
	Follow bool
	// Tail is how many of the last lines to start with; nil is all.
	Tail *int64
	// Since omits lines with an earlier timestamp, by the node's clock when
	// they were written; zero omits none.
	Since time.Time
	// Timestamps prefixes each line with its time: RFC 3339, UTC, with
	// nanoseconds.
	Timestamps bool
	// LimitBytes ends the output after that many bytes, even within a line;
	// nil is no limit.
	LimitBytes *int64
	// Stream is v1.LogStreamStdout or v1.LogStreamStderr for one of the two;
	// "" or v1.LogStreamAll is both.
	Stream string
}

// FromPodLogOptions converts and validates the API's options by the API's rules
// (pkg/apis/core/validation: ValidatePodLogOptions), except that it allows tailLines with
// one stream. The caller handles Container, Previous and InsecureSkipTLSVerifyBackend.
// sinceSeconds is relative to now.
func FromPodLogOptions(in *v1.PodLogOptions, now time.Time) (Options, error) {
	o := Options{Follow: in.Follow, Timestamps: in.Timestamps, Tail: in.TailLines, LimitBytes: in.LimitBytes}
	if in.SinceSeconds != nil && in.SinceTime != nil {
		return o, errors.New("at most one of sinceTime or sinceSeconds may be specified")
	}
	if in.SinceSeconds != nil {
		if *in.SinceSeconds < 1 {
			return o, fmt.Errorf("invalid sinceSeconds %d: must be at least 1", *in.SinceSeconds)
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

// maxSinceSeconds prevents an overflow of time.Duration: a hundred years.
const maxSinceSeconds = 100 * 365 * 24 * 3600

func (o *Options) validate() error {
	if o.Tail != nil && *o.Tail < 0 {
		return fmt.Errorf("invalid number of last lines %d: must not be negative", *o.Tail)
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		return fmt.Errorf("invalid byte limit %d: must be at least 1", *o.LimitBytes)
	}
	switch o.Stream {
	case "", v1.LogStreamAll, v1.LogStreamStdout, v1.LogStreamStderr:
		return nil
	}
	return fmt.Errorf("invalid stream %q: must be %s, %s or %s", o.Stream, v1.LogStreamAll, v1.LogStreamStdout, v1.LogStreamStderr)
}

func (o *Options) selectedStreams() [streams]bool {
	return [streams]bool{stdout: o.Stream != v1.LogStreamStderr, stderr: o.Stream != v1.LogStreamStdout}
}
