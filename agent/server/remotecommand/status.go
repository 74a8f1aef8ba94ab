package remotecommand

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxStatus limits the bytes of the command's status.
const maxStatus = 64 << 10

// Reason and cause type of an exit code in a status (constants.go of
// k8s.io/cri-streaming/pkg/streaming/remotecommand).
const (
	reasonExitCode    = "NonZeroExitCode"
	causeTypeExitCode = "ExitCode"
)

// statusBuffer receives the data of the stream error.
type statusBuffer struct{ bytes.Buffer }

var errLongStatus = errors.New("command status from server is too long")

func (r *statusBuffer) Write(b []byte) (int, error) {
	if r.Len()+len(b) > maxStatus {
		return 0, errLongStatus
	}
	return r.Buffer.Write(b)
}

// outcome is the result of a command.
type outcome struct {
	code int
	err  error
}

// status returns the result of the command; nil if the server has sent none, or an
// incomplete one.
func (s *session) status() *outcome {
	var status metav1.Status
	if json.Unmarshal(s.statusText.Bytes(), &status) != nil {
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
				return &outcome{err: &CommandError{Text: fmt.Sprintf("command ended with invalid exit code %.20q", cause.Message)}}
			}
			return &outcome{code: int(code)}
		}
	}
	if status.Message == "" {
		return &outcome{err: &CommandError{Text: fmt.Sprintf("command ended with reason %.80q and without exit code", status.Reason)}}
	}
	return &outcome{err: &CommandError{Text: status.Message}}
}
