package policy

// Reasons of refusals, the kubelet's (pkg/kubelet/cm/admission/errors.go,
// pkg/kubelet/cm/cpumanager/policy_static.go).
const (
	ReasonUnexpected   = "UnexpectedAdmissionError"
	ReasonSMTAlignment = "SMTAlignmentError"
)

// Refusal is the error of a container that cannot have the CPUs that it asks
// for. Its pod fails with Reason.
type Refusal struct {
	Reason, Message string
}

func (r *Refusal) Error() string { return r.Message }
