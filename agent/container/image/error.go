package image

import (
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

// Error is the reason why an image is not present, for the pod's status.
type Error struct {
	Reason  string // one of the Reason constants
	Message string // human-readable
	// RetryAfter is how long Ensure will return ImagePullBackOff from now on.
	// With 0 the next call tries at once.
	RetryAfter time.Duration
	// Err is the runtime's error; nil if it returned none.
	Err error
}

func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Unwrap returns the runtime's error, or nil.
func (e *Error) Unwrap() error { return e.Err }

// pullReason returns the reason that the runtime put before its message, as
// CRI allows, or else ErrImagePull.
func pullReason(err error) string {
	for _, reason := range []string{ReasonRegistryUnavailable, ReasonSignatureInvalid} {
		if strings.Contains(err.Error(), reason+":") {
			return reason
		}
	}
	return ReasonPull
}
