package policy

// Reasons of rejections, as the kubelet's (pkg/kubelet/cm/admission/errors.go,
// pkg/kubelet/cm/cpumanager/policy_static.go).
const (
	ReasonUnexpected   = "UnexpectedAdmissionError"
	ReasonSMTAlignment = "SMTAlignmentError"
)

// AdmissionError is the error for a container whose exclusive CPUs cannot be assigned. Its
// pod fails with Reason.
type AdmissionError struct {
	Reason, Message string
}

func (r *AdmissionError) Error() string { return r.Message }
