package nodestatus

import (
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Problems for which a kubelet is not ready, in its words (runtimeErrors in
// pkg/kubelet/runtime.go and ShutdownStatus in
// pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go).
const (
	// ProblemRuntimeUnchecked holds until the runtime is ready for the first time.
	ProblemRuntimeUnchecked = "container runtime status check may not have completed yet"
	// ProblemRuntimeDown holds when the runtime has not answered for a long time.
	ProblemRuntimeDown = "container runtime is down"
	// ProblemNoSystemd holds while no pod can have a cgroup because systemd does
	// not run. A kubelet would not start.
	ProblemNoSystemd = "container runtime's cgroup driver is systemd, which does not run this node: set SystemdCgroup = false in containerd's configuration and restart it"
	// ProblemShutdown holds during a node shutdown.
	ProblemShutdown = "node is shutting down"
)

// RuntimeProblems returns why the runtime reports that it is not ready: first the
// runtime itself, then its network. It returns nil if both are ready
// (updateRuntimeUp in pkg/kubelet/kubelet.go).
func RuntimeProblems(status *runtimeapi.RuntimeStatus) []string {
	var problems []string
	for _, needed := range []struct{ kind, problem string }{
		{runtimeapi.RuntimeReady, "container runtime not ready: "},
		{runtimeapi.NetworkReady, "container runtime network not ready: "},
	} {
		list := status.GetConditions()
		at := slices.IndexFunc(list, func(c *runtimeapi.RuntimeCondition) bool { return c.GetType() == needed.kind })
		switch {
		case at < 0:
			problems = append(problems, needed.problem+"<nil>")
		case !list[at].GetStatus():
			problems = append(problems, fmt.Sprintf("%s%s=%t reason:%s message:%s",
				needed.problem, needed.kind, false, list[at].GetReason(), list[at].GetMessage()))
		}
	}
	return problems
}

// aggregate formats problems as the kubelet's aggregated errors, without duplicates
// (k8s.io/apimachinery/pkg/util/errors).
func aggregate(problems []string) string {
	var once []string
	for _, p := range problems {
		if !slices.Contains(once, p) {
			once = append(once, p)
		}
	}
	if len(once) == 1 {
		return once[0]
	}
	return "[" + strings.Join(once, ", ") + "]"
}
