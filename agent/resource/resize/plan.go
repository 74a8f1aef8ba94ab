package resize

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Group is what bounds a pod as a whole, in its cgroup. In what was read, a
// known zero is no bound, and what is not known is left alone; in what is
// wanted, zero and not known both leave it alone, since to take a limit away
// is no resize.
type Group struct {
	CPUWeight Amount // cgroup v2's
	CPUQuota  Amount // microseconds, in the same period for both
	MemoryMax Amount // bytes
}

// Running is a container that runs.
type Running struct {
	ID     string
	Actual Actual
}

// World is what runs of a pod.
type World struct {
	// Containers are those that run, by name. One that does not run, or that
	// is being stopped, is not in it: it gets what was allocated when it is
	// started.
	Containers map[string]Running
	// Group is what the pod's cgroup has, and Wanted what the allocated pod
	// is to have.
	Group, Wanted Group
	// NoCPUQuota says that the node sets no limits of cpu, be it for this pod
	// alone (cpuCFSQuota).
	NoCPUQuota bool
}

// StepKind is what a step does.
type StepKind uint8

// The kinds of steps. PodLimit sets a limit of the pod's cgroup, to Amount of
// microseconds or bytes; PodWeight sets its CPU weight to Amount; Update is a
// CRI UpdateContainerResources with Values.
const (
	PodLimit StepKind = iota + 1
	PodWeight
	Update
)

func (k StepKind) String() string {
	switch k {
	case PodLimit:
		return "PodLimit"
	case PodWeight:
		return "PodWeight"
	case Update:
		return "Update"
	}
	return "unknown"
}

// Step is one thing to do.
type Step struct {
	Kind     StepKind
	Resource v1.ResourceName // cpu or memory
	Amount   int64           // of the pod
	// Container, ID and Values are of an Update.
	Container, ID string
	Values        Values
}

// Restart is a container that wants a restart for what is resized.
type Restart struct {
	Container, ID string
	Message       string // the kubelet's, of the event
}

// Plan is how what runs becomes what was allocated. First the containers of
// Restart are stopped, then Steps are done in their order, then what was
// stopped is started with what was allocated. A step that fails ends the
// steps: the next plan goes on from what is found then. A runtime is told of
// a PodLimit or PodWeight (UpdatePodSandboxResources) before it is set.
type Plan struct {
	Restart []Restart
	Steps   []Step
	lowered []lowered
}

// lowered is a memory limit that becomes less; of the pod, the container is
// empty.
type lowered struct {
	container string
	limit     int64
}

// Settled says that what runs is what was allocated. While it is not, the pod
// has the condition PodResizeInProgress.
func (p *Plan) Settled() bool { return len(p.Restart) == 0 && len(p.Steps) == 0 }

// PlanOf compares the pod as it was allocated with what runs
// (computePodResizeAction and doPodResizeAction in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go).
//
// Memory goes before cpu. Of each, the pod's bounds grow before its
// containers do and shrink after them; limits grow before requests and shrink
// after them; containers that get less come before those that get more. A
// container whose policy for one of its changed resources is RestartContainer
// is restarted and not updated; an init container that is no sidecar runs to
// its end, and is only updated.
//
// Three things differ. The kubelet compares with its own record of what it
// last set, not with what the runtime tells; it counts a limit where there
// was none as growth; and it looks at the pod's cgroup only beside a change
// of a container or of pod-level resources.
func PlanOf(p *v1.Pod, w *World) Plan {
	var plan Plan
	var memory, cpu []change
	for c, kind := range pod.Containers(&p.Spec) {
		running, ok := w.Containers[c.Name]
		if !ok || kind == pod.Ephemeral {
			continue
		}
		wanted := Wanted(p, c)
		byMemory, byCPU := running.Actual.memoryChange(wanted), running.Actual.cpuChange(wanted, w.NoCPUQuota)
		mayRestart := kind == pod.Main || pod.IsRestartableInit(c)
		if mayRestart && (byMemory != 0 && restarts(c, v1.ResourceMemory) || byCPU != 0 && restarts(c, v1.ResourceCPU)) {
			plan.Restart = append(plan.Restart, Restart{
				Container: c.Name, ID: running.ID,
				Message: fmt.Sprintf("Container %s resize requires restart", c.Name),
			})
			continue
		}
		step := Step{Kind: Update, Container: c.Name, ID: running.ID, Values: wanted}
		if byCPU != 0 {
			step.Resource = v1.ResourceCPU
			cpu = append(cpu, change{step, byCPU})
		}
		if byMemory != 0 {
			step.Resource = v1.ResourceMemory
			if byCPU != 0 {
				step.Values = running.Actual.keepCPU(wanted)
			}
			memory = append(memory, change{step, byMemory})
			if limitChange(running.Actual.MemoryLimit, wanted.MemoryLimit) < 0 {
				plan.lowered = append(plan.lowered, lowered{c.Name, wanted.MemoryLimit})
			}
		}
	}
	if limitChange(w.Group.MemoryMax, wantedOf(w.Wanted.MemoryMax)) < 0 {
		plan.lowered = append(plan.lowered, lowered{"", w.Wanted.MemoryMax.Value})
	}
	plan.steps(v1.ResourceMemory, memory, w.Group.MemoryMax, w.Wanted.MemoryMax, Amount{}, Amount{})
	quota := w.Wanted.CPUQuota
	if w.NoCPUQuota {
		quota = Amount{}
	}
	plan.steps(v1.ResourceCPU, cpu, w.Group.CPUQuota, quota, w.Group.CPUWeight, w.Wanted.CPUWeight)
	return plan
}

// change is an update and its direction.
type change struct {
	step Step
	by   int
}

// keepCPU are the values with the cpu that the container still has: it
// changes in a step of its own.
func (a Actual) keepCPU(v Values) Values {
	if a.CPUShares.Known {
		v.CPURequest = a.cpuRequest()
	}
	if a.CPUQuota.Known {
		v.CPULimit = a.cpuLimit()
	}
	return v
}

// steps adds those of one resource.
func (p *Plan) steps(name v1.ResourceName, changes []change, limit, wantedLimit, weight, wantedWeight Amount) {
	byLimit, byWeight := limitChange(limit, wantedOf(wantedLimit)), 0
	if weight.Known && wantedOf(wantedWeight) > 0 {
		byWeight = cmp.Compare(wantedWeight.Value, weight.Value)
	}
	podLimit := Step{Kind: PodLimit, Resource: name, Amount: wantedLimit.Value}
	podWeight := Step{Kind: PodWeight, Resource: name, Amount: wantedWeight.Value}
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

func wantedOf(a Amount) int64 {
	if !a.Known {
		return 0
	}
	return a.Value
}
