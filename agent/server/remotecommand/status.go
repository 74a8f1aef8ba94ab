package remotecommand

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxStatus is how many bytes a server may take to say how a command ended.
const maxStatus = 64 << 10

// How a status tells an exit code (constants.go of the package above).
const (
	reasonExitCode    = "NonZeroExitCode"
	causeTypeExitCode = "ExitCode"
)

// report is what comes on the stream error.
type report struct{ bytes.Buffer }

var errLongStatus = errors.New("the server takes too many bytes to say how the command ended")

func (r *report) Write(b []byte) (int, error) {
	if r.Len()+len(b) > maxStatus {
		return 0, errLongStatus
	}
	return r.Buffer.Write(b)
}

// outcome is how a command ended.
type outcome struct {
	code int
	err  error
}

// status is how the command ended; nil if that was not told, or not to its
// end.
func (s *session) status() *outcome {
	var status metav1.Status
	if json.Unmarshal(s.told.Bytes(), &status) != nil {
		return nil
	}
	return outcomeOf(&status)
}

func outcomeOf(status *metav1.Status) *outcome {
	switch status.Status {
	case metav1.StatusSuccess:
		return &outcome{}
	case metav1.StatusFailure:
	default:
		return nil
	}
	if status.Reason == reasonExitCode && status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Type != causeTypeExitCode {
				continue
			}
			code, err := strconv.ParseUint(cause.Message, 10, 8)
			if err != nil || code == 0 {
				return &outcome{err: &Failed{Text: fmt.Sprintf("the command ended with the exit code %.20q, which is none", cause.Message)}}
			}
			return &outcome{code: int(code)}
		}
	}
	if status.Message == "" {
		return &outcome{err: &Failed{Text: fmt.Sprintf("the command ended with %.80q, and no exit code", status.Reason)}}
	}
	return &outcome{err: &Failed{Text: status.Message}}
}
