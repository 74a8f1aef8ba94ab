package nodestatus

import (
	"errors"
	"fmt"
	"slices"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Problems for which a kubelet is not ready, in its words (runtimeErrors in
// pkg/kubelet/runtime.go and ShutdownStatus in
// pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go).
const (
	// ProblemRuntimeUnchecked holds until the runtime has reported its status once.
	ProblemRuntimeUnchecked = "container runtime status check may not have completed yet"
	// ProblemRuntimeDown holds while the runtime has not answered for a long time.
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
		{runtimeapi.NetworkReady, networkProblem},
	} {
		switch c := condition(status, needed.kind); {
		case c == nil:
			problems = append(problems, needed.problem+"<nil>")
		case !c.GetStatus():
			problems = append(problems, needed.problem+describe(c))
		}
	}
	return problems
}

// networkProblem begins the problem of a runtime whose network is not ready.
const networkProblem = "container runtime network not ready: "

// NetworkProblem returns why the runtime reports that its network is not ready. It returns
// "" if the network is ready, and if the runtime does not report whether it is.
func NetworkProblem(status *runtimeapi.RuntimeStatus) string {
	if c := condition(status, runtimeapi.NetworkReady); c != nil && !c.GetStatus() {
		return networkProblem + describe(c)
	}
	return ""
}

// condition returns the condition of a type, nil if there is none.
func condition(status *runtimeapi.RuntimeStatus, kind string) *runtimeapi.RuntimeCondition {
	list := status.GetConditions()
	at := slices.IndexFunc(list, func(c *runtimeapi.RuntimeCondition) bool { return c.GetType() == kind })
	if at < 0 {
		return nil
	}
	return list[at]
}

func describe(c *runtimeapi.RuntimeCondition) string {
	return fmt.Sprintf("%s=%t reason:%s message:%s", c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage())
}

// aggregate formats problems as the kubelet's aggregated errors, without duplicates.
func aggregate(problems []string) string {
	all := make([]error, len(problems))
	for i, p := range problems {
		all[i] = errors.New(p)
	}
	return utilerrors.NewAggregate(all).Error()
}
