package policy

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/pod"
)

func TestAdmit(t *testing.T) {
	const key = v1.TaintNodeMemoryPressure
	tolerating := func(tolerations ...v1.Toleration) edit {
		return func(p *Pod) { p.Pod.Spec.Tolerations = tolerations }
	}
	asks := container("a", "cpu", "1m")
	mem, disk, pids := evictionapi.Conditions{Memory: true}, evictionapi.Conditions{Disk: true}, evictionapi.Conditions{PID: true}
	all := evictionapi.Conditions{Memory: true, Disk: true, PID: true}
	const (
		onlyMem = "The node had condition: [MemoryPressure]. "
		onlyDsk = "The node had condition: [DiskPressure]. "
		onlyPID = "The node had condition: [PIDPressure]. "
		ofAll   = "The node had condition: [MemoryPressure DiskPressure PIDPressure]. "
	)
	for _, tc := range []struct {
		name  string
		pod   Pod
		under evictionapi.Conditions
		want  string // "" admits
	}{
		{"no pressure", running("p"), evictionapi.Conditions{}, ""},
		{"static under all", running("p", annotated(pod.AnnotationSource)), all, ""},
		{"mirror under all", running("p", annotated(pod.AnnotationMirror)), all, ""},
		{"critical under all", running("p", priority(pod.SystemCriticalPriority)), all, ""},
		{"nearly critical", running("p", priority(pod.SystemCriticalPriority-1)), all, ofAll},
		{"burstable", running("p", asks), mem, ""},
		{"burstable, disk", running("p", asks), disk, onlyDsk},
		{"burstable, process IDs", running("p", asks), pids, onlyPID},
		{"burstable, memory and disk", running("p", asks), evictionapi.Conditions{Memory: true, Disk: true}, "The node had condition: [MemoryPressure DiskPressure]. "},
		{"best effort", running("p", container("a")), mem, onlyMem},
		{"best effort that tolerates", running("p", tolerating(v1.Toleration{Key: "x"}, v1.Toleration{Key: key, Operator: "Exists", Effect: "NoSchedule"})), mem, ""},
		{"tolerates all there is", running("p", tolerating(v1.Toleration{Operator: "Exists"})), mem, ""},
		{"tolerates the empty value", running("p", tolerating(v1.Toleration{Key: key})), mem, ""},
		{"tolerates another value", running("p", tolerating(v1.Toleration{Key: key, Operator: "Equal", Value: "x"})), mem, onlyMem},
		{"tolerates another effect", running("p", tolerating(v1.Toleration{Key: key, Operator: "Exists", Effect: "NoExecute"})), mem, onlyMem},
		{"tolerates another taint", running("p", tolerating(v1.Toleration{Key: v1.TaintNodeDiskPressure, Operator: "Exists"})), mem, onlyMem},
		{"compares numbers", running("p", tolerating(v1.Toleration{Key: key, Operator: "Gt"})), mem, onlyMem},
		{"tolerating does not help with disks", running("p", tolerating(v1.Toleration{Operator: "Exists"})), disk, onlyDsk},
	} {
		if got, ok := Admit(tc.pod.Pod, tc.under); got != tc.want || ok != (tc.want == "") {
			t.Errorf("%s: %t, %q", tc.name, ok, got)
		}
	}
}
