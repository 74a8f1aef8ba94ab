package policy

// Reasons of rejections, as the kubelet's (pkg/kubelet/cm/admission/errors.go,
// pkg/kubelet/cm/cpumanager/policy_static.go).
const (
	ReasonUnexpected   = "UnexpectedAdmissionError"
	ReasonSMTAlignment = "SMTAlignmentError"
)

// Refusal is the error for a container whose exclusive CPUs cannot be assigned. Its
// pod fails with Reason.
type Refusal struct {
	Reason, Message string
}

func (r *Refusal) Error() string { return r.Message }
