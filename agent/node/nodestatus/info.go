package nodestatus

import (
	"cmp"
	goruntime "runtime"

	v1 "k8s.io/api/core/v1"
	semver "k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config/version"
)

// unknown is the kubelet's text for a version that it cannot read.
const unknown = "Unknown"

// info sets what identifies machine and software (MachineInfo, VersionInfo and
// GoRuntime in pkg/kubelet/nodestatus/setters.go).
func info(to *v1.NodeSystemInfo, in *Inputs) {
	m := &in.Machine
	runtime := cmp.Or(to.ContainerRuntimeVersion, unknown+"://"+unknown)
	if in.RuntimeVersion != nil {
		runtime = runtimeVersion(in.RuntimeVersion)
	}
	// The kube-proxy version is no longer reported: the proxy may not even run
	// (KEP-4004).
	*to = v1.NodeSystemInfo{
		MachineID:               m.MachineID,
		SystemUUID:              m.SystemUUID,
		BootID:                  m.BootID,
		KernelVersion:           cmp.Or(m.KernelVersion, unknown),
		OSImage:                 cmp.Or(m.OSImage, unknown),
		ContainerRuntimeVersion: runtime,
		KubeletVersion:          version.Kubelet(),
		OperatingSystem:         goruntime.GOOS,
		Architecture:            goruntime.GOARCH,
	}
	if swap := m.Swap; swap > 0 {
		to.Swap = &v1.NodeSwapStatus{Capacity: &swap}
	}
}

// runtimeVersion returns the runtime's name and version, such as
// containerd://2.4.2. It omits the v that containerd puts before the version
// (newRuntimeVersion in pkg/kubelet/kuberuntime/kuberuntime_manager.go).
func runtimeVersion(told *runtimeapi.VersionResponse) string {
	text := unknown
	if v, err := semver.ParseSemantic(told.GetRuntimeVersion()); err == nil {
		text = v.String()
	} else if v, err := semver.ParseGeneric(told.GetRuntimeVersion()); err == nil {
		text = v.String()
	}
	return cmp.Or(told.GetRuntimeName(), unknown) + "://" + text
}
