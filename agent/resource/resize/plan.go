package resize

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// CgroupLimits holds the limits and the weight of the pod's cgroup. In actual values, a
// known 0 means no limit, and an unknown one is not changed. In desired values, 0 and
// unknown mean that it is not changed, because removing a limit is no resize.
type CgroupLimits struct {
	CPUWeight Amount // of cgroup v2
	CPUQuota  Amount // microseconds, with the same period in both
	MemoryMax Amount // bytes
}

// Running is a running container.
type Running struct {
	ID     string
	Actual Actual
}

// State is the actual state of a pod.
type State struct {
	// Containers holds the running containers by name. It omits containers that do
	// not run or are being stopped: they get the allocation at their next start.
	Containers map[string]Running
	// Cgroup holds the actual values of the pod's cgroup, and DesiredCgroup those for
	// the allocated pod.
	Cgroup, DesiredCgroup CgroupLimits
	// NoCPUQuota means that no CPU limits are set, by the node (cpuCFSQuota) or for
	// this pod alone.
	NoCPUQuota bool
}

// StepKind is the kind of a step.
type StepKind uint8

// The kinds of steps. PodLimit sets a limit of the pod's cgroup to Amount, in
// microseconds or bytes. PodWeight sets its CPU weight to Amount. Update calls CRI's
// UpdateContainerResources with Values.
const (
	PodLimit StepKind = iota + 1
	PodWeight
	Update
)

// Step is one action of a plan.
type Step struct {
	Kind     StepKind
	Resource v1.ResourceName // cpu or memory
	Amount   int64           // for the pod's cgroup
	// Container, ID and Values are set for Update only.
	Container, ID string
	Values        Values
}

// Restart is a container that must be restarted for the resize.
type Restart struct {
	Container, ID string
	Message       string // of the event, as the kubelet's
}

// Plan changes the actual resources into the allocation. The caller first stops the
// containers in Restart, then performs Steps in order, then starts the stopped
// containers with the allocation. A failed step ends the execution, and the next plan
// continues from the state found then. Unlike a kubelet, the caller does not notify the
// runtime of a PodLimit or PodWeight (UpdatePodSandboxResources).
type Plan struct {
	Restart []Restart
	Steps   []Step
	lowered []lowered
}

// lowered is a decreased memory limit; for the pod, container is "".
type lowered struct {
	container string
	limit     int64
}

// IsEmpty reports whether the actual resources equal the allocation. Otherwise the
// pod has the condition PodResizeInProgress.
func (p *Plan) IsEmpty() bool { return len(p.Restart) == 0 && len(p.Steps) == 0 }

// PlanOf compares the allocated pod with its actual state (computePodResizeAction and
// doPodResizeAction in pkg/kubelet/kuberuntime/kuberuntime_manager.go).
//
// Memory precedes cpu. For each, the pod's limits increase before those of its
// containers and decrease after them; limits increase before requests and decrease
// after them; containers that shrink precede those that grow. A container whose
// resize policy for a changed resource is RestartContainer is restarted and not
// updated. An init container that is not restartable runs to completion and is only
// updated.
//
// Three things differ from the kubelet. It compares with its own record of the last
// values that it set, not with what the runtime reports; it treats a new limit as
// growth; and it checks the pod's cgroup only together with a change of a container
// or of pod-level resources.
func PlanOf(p *v1.Pod, w *State) Plan {
	var plan Plan
	var memory, cpu []change
	for c, kind := range pod.Containers(&p.Spec) {
		running, ok := w.Containers[c.Name]
		if !ok || kind == pod.Ephemeral {
			continue
		}
		desired := DesiredValues(p, c)
		byMemory, byCPU := running.Actual.memoryChange(desired), running.Actual.cpuChange(desired, w.NoCPUQuota)
		mayRestart := kind == pod.Main || pod.IsRestartableInit(c)
		if mayRestart && (byMemory != 0 && restarts(c, v1.ResourceMemory) || byCPU != 0 && restarts(c, v1.ResourceCPU)) {
			plan.Restart = append(plan.Restart, Restart{
				Container: c.Name, ID: running.ID,
				Message: fmt.Sprintf("Container %s resize requires restart", c.Name),
			})
			continue
		}
		step := Step{Kind: Update, Container: c.Name, ID: running.ID, Values: desired}
		if byCPU != 0 {
			step.Resource = v1.ResourceCPU
			cpu = append(cpu, change{step, byCPU})
		}
		if byMemory != 0 {
			step.Resource = v1.ResourceMemory
			if byCPU != 0 {
				step.Values = running.Actual.withActualCPU(desired)
			}
			memory = append(memory, change{step, byMemory})
			if limitChange(running.Actual.MemoryLimit, desired.MemoryLimit) < 0 {
				plan.lowered = append(plan.lowered, lowered{c.Name, desired.MemoryLimit})
			}
		}
	}
	if limitChange(w.Cgroup.MemoryMax, w.DesiredCgroup.MemoryMax.Value) < 0 {
		plan.lowered = append(plan.lowered, lowered{"", w.DesiredCgroup.MemoryMax.Value})
	}
	plan.steps(v1.ResourceMemory, memory, w.Cgroup.MemoryMax, w.DesiredCgroup.MemoryMax, Amount{}, Amount{})
	quota := w.DesiredCgroup.CPUQuota
	if w.NoCPUQuota {
		quota = Amount{}
	}
	plan.steps(v1.ResourceCPU, cpu, w.Cgroup.CPUQuota, quota, w.Cgroup.CPUWeight, w.DesiredCgroup.CPUWeight)
	return plan
}

// change is an update with its direction.
type change struct {
	step Step
	by   int
}

// withActualCPU returns the values with the container's actual cpu, which changes in a
// separate step.
func (a Actual) withActualCPU(v Values) Values {
	if a.CPUShares.Known {
		v.CPURequest = a.cpuRequest()
	}
	if a.CPUQuota.Known {
		v.CPULimit = a.cpuLimit()
	}
	return v
}

func (p *Plan) steps(name v1.ResourceName, changes []change, limit, desiredLimit, weight, desiredWeight Amount) {
	byLimit, byWeight := limitChange(limit, desiredLimit.Value), 0
	if weight.Known && desiredWeight.Value > 0 {
		byWeight = cmp.Compare(desiredWeight.Value, weight.Value)
	}
	podLimit := Step{Kind: PodLimit, Resource: name, Amount: desiredLimit.Value}
	podWeight := Step{Kind: PodWeight, Resource: name, Amount: desiredWeight.Value}
	if byLimit > 0 {
		p.Steps = append(p.Steps, podLimit)
	}
	if byWeight > 0 {
		p.Steps = append(p.Steps, podWeight)
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.by, b.by) })
	for i := range changes {
		p.Steps = append(p.Steps, changes[i].step)
	}
	if byWeight < 0 {
		p.Steps = append(p.Steps, podWeight)
	}
	if byLimit < 0 {
		p.Steps = append(p.Steps, podLimit)
	}
}
