package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// cdiPrefix is the prefix of the annotations that request CDI devices.
const cdiPrefix = "cdi.k8s.io/"

// refuse returns an error for what is invalid or not supported.
func (b *builder) refuse() error {
	if _, err := StopSignal(b.Config, b.Image); err != nil {
		return err
	}
	if b.security.GetPrivileged() && !b.Sandbox.GetLinux().GetSecurityContext().GetPrivileged() {
		return errors.New("security_context.privileged: no privileged container allowed in a sandbox that is not privileged: create the sandbox with privileged")
	}
	if err := b.refuseCDI(); err != nil {
		return err
	}
	for _, kind := range []string{"blockio", "rdt"} {
		if class := b.class(kind); class != "" {
			return fmt.Errorf("annotations: %s class %q is not supported by driver native: remove the annotation or use driver cri", kind, class)
		}
	}
	return b.refuseSELinux()
}

func (b *builder) refuseCDI() error {
	if d := b.Config.GetCDIDevices(); len(d) > 0 {
		return fmt.Errorf("CDI_devices: CDI device %q is not supported by driver native: remove the device or use driver cri", d[0].GetName())
	}
	for _, key := range slices.Sorted(maps.Keys(b.Config.GetAnnotations())) {
		if strings.HasPrefix(key, cdiPrefix) {
			return fmt.Errorf("annotations: CDI device of %q is not supported by driver native: remove the annotation or use driver cri", key)
		}
	}
	return nil
}

// class returns the container's class of a kind, "" for none. The container's annotation
// takes precedence over the pod's for the container, and that over the pod's for all
// (goresctrl, pkg/kubernetes/annotations.go).
func (b *builder) class(kind string) string {
	if class, ok := b.Config.GetAnnotations()["io.kubernetes.cri."+kind+"-class"]; ok {
		return class
	}
	prefix, pod := kind+".resources.beta.kubernetes.io/", b.Sandbox.GetAnnotations()
	if class, ok := pod[prefix+"container."+b.Config.GetMetadata().GetName()]; ok {
		return class
	}
	return pod[prefix+"pod"]
}

// selinuxLevel is the form of an MLS or MCS level (checkSelinuxLevel in server/helpers.go).
var selinuxLevel = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^s\d(-s\d)?(:c\d{1,4}(\.c\d{1,4})?(,c\d{1,4}(\.c\d{1,4})?)*)?$`)
})

// refuseSELinux checks the options of the container, else of the sandbox. Without SELinux in
// the kernel valid options have no effect.
func (b *builder) refuseSELinux() error {
	own := b.security.GetSelinuxOptions()
	if level := own.GetLevel(); level != "" && !selinuxLevel().MatchString(level) {
		return fmt.Errorf("security_context.selinux_options: level %q is malformed: write it as s0:c1,c2", level)
	}
	if !b.Node.SELinux {
		return nil
	}
	for _, o := range []*runtimeapi.SELinuxOption{own, b.Sandbox.GetLinux().GetSecurityContext().GetSelinuxOptions()} {
		if cmp.Or(o.GetUser(), o.GetRole(), o.GetType(), o.GetLevel()) != "" {
			return errors.New("security_context.selinux_options: SELinux is not supported by driver native: remove the options, use driver cri, or start the kernel with selinux=0")
		}
	}
	return nil
}
