package container

import (
	"encoding/json"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxHandler limits the annotation that is read as a handler: the API server
// allows this much for all annotations of an object.
const maxHandler = 256 << 10

// preStopOf reads the handler that a container was made with. Whoever may
// write annotations of containers may run commands anyway, but what is not
// one handler is none.
func preStopOf(annotations map[string]string) *v1.LifecycleHandler {
	text := annotations[AnnotationPreStopHandler]
	if text == "" || len(text) > maxHandler {
		return nil
	}
	h := new(v1.LifecycleHandler)
	if err := json.Unmarshal([]byte(text), h); err != nil {
		return nil
	}
	kinds := 0
	for _, set := range []bool{h.Exec != nil, h.HTTPGet != nil, h.TCPSocket != nil, h.Sleep != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 || h.Exec != nil && len(h.Exec.Command) == 0 {
		return nil
	}
	return h
}

// userOf is who a container's first process runs as, or nil. A runtime that
// cannot tell answers a user without a part for Linux.
func userOf(u *runtimeapi.ContainerUser) *v1.ContainerUser {
	linux := u.GetLinux()
	if linux == nil {
		return nil
	}
	return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
		UID:                linux.GetUid(),
		GID:                linux.GetGid(),
		SupplementalGroups: slices.Clone(linux.GetSupplementalGroups()),
	}}
}

// signalOf spells a signal as the API does: SIGRTMIN+1, where CRI has
// SIGNAL_SIGRTMINPLUS1. A number that CRI does not know gives none.
func signalOf(s runtimeapi.Signal) v1.Signal {
	name, known := runtimeapi.Signal_name[int32(s)]
	if !known || s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return ""
	}
	name = strings.TrimPrefix(name, "SIGNAL_")
	name = strings.Replace(name, "PLUS", "+", 1)
	return v1.Signal(strings.Replace(name, "MINUS", "-", 1))
}
