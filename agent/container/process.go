package container

import (
	"encoding/json"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxHandler is the size of the largest annotation that is decoded as a handler, in bytes:
// the API server's limit of all annotations of an object.
const maxHandler = 256 << 10

// preStopOf decodes the preStop handler from a container's annotations. It
// returns nil unless the annotation holds exactly one valid handler. This is no
// security boundary: a user who can write annotations of containers can run
// commands anyway.
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

// userOf returns the user of a container's first process, or nil. A runtime
// that does not know the user returns one without its Linux part.
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

// signalOf converts a signal to the API's spelling: SIGRTMIN+1 for CRI's
// SIGNAL_SIGRTMINPLUS1. It returns "" for the runtime's default and for a
// number that CRI does not define.
func signalOf(s runtimeapi.Signal) v1.Signal {
	name, known := runtimeapi.Signal_name[int32(s)]
	if !known || s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return ""
	}
	name = strings.TrimPrefix(name, "SIGNAL_")
	name = strings.Replace(name, "PLUS", "+", 1)
	return v1.Signal(strings.Replace(name, "MINUS", "-", 1))
}
