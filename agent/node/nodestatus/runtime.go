package nodestatus

import (
	"cmp"
	"math"
	goruntime "runtime"
	"slices"

	v1 "k8s.io/api/core/v1"
	semver "k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config/version"
)

// handlers sets the features of each runtime handler, by name, and those of the
// whole runtime (RuntimeHandlers and NodeFeatures in
// pkg/kubelet/nodestatus/setters.go).
func handlers(s *v1.NodeStatus, in *Inputs) {
	if in.RuntimeStatus == nil {
		return
	}
	s.RuntimeHandlers = nil
	for _, h := range in.RuntimeStatus.GetRuntimeHandlers() {
		recursive, users := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		s.RuntimeHandlers = append(s.RuntimeHandlers, v1.NodeRuntimeHandler{
			Name:     h.GetName(),
			Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &recursive, UserNamespaces: &users},
		})
	}
	slices.SortFunc(s.RuntimeHandlers, func(a, b v1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	if features := in.RuntimeStatus.GetFeatures(); features != nil {
		groups := features.GetSupplementalGroupsPolicy()
		s.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &groups}
	}
}

// maxNames is how many names of one image are reported
// (MaxNamesPerImageInNodeStatus in pkg/kubelet/nodestatus/setters.go).
const maxNames = 5

// images sets the largest images, digests before tags (Images in the same file, and
// ByImageSize in pkg/kubelet/util/sliceutils). A nodeStatusMaxImages of -1 reports
// all.
func images(s *v1.NodeStatus, in *Inputs) {
	if in.Images == nil {
		return
	}
	sorted := slices.SortedFunc(slices.Values(in.Images), func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.GetSize(), a.GetSize()), cmp.Compare(b.GetId(), a.GetId()))
	})
	if most := in.Config.Kubelet.NodeStatusMaxImages; most != nil && *most >= 0 && int(*most) < len(sorted) {
		sorted = sorted[:*most]
	}
	s.Images = nil
	for _, image := range sorted {
		// Never nil, which JSON would encode as null.
		names := append([]string{}, image.GetRepoDigests()...)
		names = append(names, image.GetRepoTags()...)
		s.Images = append(s.Images, v1.ContainerImage{
			Names:     names[:min(len(names), maxNames)],
			SizeBytes: int64(min(image.GetSize(), math.MaxInt64)),
		})
	}
}

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
func runtimeVersion(response *runtimeapi.VersionResponse) string {
	text := unknown
	if v, err := semver.ParseSemantic(response.GetRuntimeVersion()); err == nil {
		text = v.String()
	} else if v, err := semver.ParseGeneric(response.GetRuntimeVersion()); err == nil {
		text = v.String()
	}
	return cmp.Or(response.GetRuntimeName(), unknown) + "://" + text
}
