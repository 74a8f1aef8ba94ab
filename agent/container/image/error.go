package image

import (
	"errors"
	"strings"
	"time"
)

// Reasons why a container waits for its image, as the kubelet spells them in
// pod status (pkg/kubelet/images/types.go, k8s.io/cri-api/pkg/errors).
const (
	ReasonPull                = "ErrImagePull"
	ReasonBackOff             = "ImagePullBackOff"
	ReasonNeverPull           = "ErrImageNeverPull"
	ReasonInspect             = "ImageInspectError"
	ReasonInvalidName         = "InvalidImageName"
	ReasonRegistryUnavailable = "RegistryUnavailable"
	ReasonSignatureInvalid    = "SignatureValidationFailed"
)

// Error is why an image is not there: what goes into the pod's status.
type Error struct {
	Reason  string // one of the Reason constants
	Message string // for people
	// RetryAfter is how long Ensure will answer ImagePullBackOff from now
	// on; 0 if it would try at once.
	RetryAfter time.Duration
	// Err is the runtime's error, if it had one.
	Err error
}

func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Unwrap is the runtime's error.
func (e *Error) Unwrap() error { return e.Err }

// pullReason finds the reasons that CRI lets a runtime give: its message
// begins with them.
func pullReason(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, reason := range []string{ReasonRegistryUnavailable, ReasonSignatureInvalid} {
			if strings.Contains(e.Error(), reason+":") {
				return reason
			}
		}
	}
	return ReasonPull
}
