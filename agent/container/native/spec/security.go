package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// localhostPrefix is what older clients put before the name of a profile.
	localhostPrefix = "localhost/"
	// defaultAppArmor is the name of the profile RuntimeDefault. Node's owner loads it before
	// a container needs it.
	defaultAppArmor = "cri-containerd.apparmor.d"
)

// paths sets the masked and read-only paths of /proc and /sys exactly as the config has them.
// A privileged container has none (server/container_create.go).
func (b *builder) paths() error {
	if !b.security.GetPrivileged() {
		b.spec.Linux.MaskedPaths = slices.Clone(b.security.GetMaskedPaths())
		b.spec.Linux.ReadonlyPaths = slices.Clone(b.security.GetReadonlyPaths())
	}
	return nil
}

// seccomp sets the system call filter (sputil/seccomp_linux.go). Without a profile there is
// none: the kubelet's seccompDefault sets RuntimeDefault in the config.
func (b *builder) seccomp() error {
	profile := b.security.GetSeccomp()
	if b.security.GetPrivileged() || profile == nil {
		return nil
	}
	if !b.Node.Seccomp {
		if profile.GetProfileType() == runtimeapi.SecurityProfile_Unconfined {
			return nil
		}
		return errors.New("security_context.seccomp: seccomp is not supported by the kernel: build it with CONFIG_SECCOMP_FILTER or use profile Unconfined")
	}
	if err := checkProfile(profile); err != nil {
		return fmt.Errorf("security_context.seccomp: %w", err)
	}
	switch profile.GetProfileType() {
	case runtimeapi.SecurityProfile_RuntimeDefault:
		b.spec.Linux.Seccomp = b.Node.DefaultSeccomp(b.spec)
	case runtimeapi.SecurityProfile_Localhost:
		path := strings.TrimPrefix(profile.GetLocalhostRef(), localhostPrefix)
		text, err := b.Node.ReadSeccomp(path)
		if err != nil {
			return fmt.Errorf("security_context.seccomp: read profile %q: %w", path, err)
		}
		out := &specs.LinuxSeccomp{}
		if err := json.Unmarshal(text, out); err != nil {
			return fmt.Errorf("security_context.seccomp: decode profile %q: %w: write it as linux.seccomp of the OCI runtime spec", path, err)
		}
		b.spec.Linux.Seccomp = out
	case runtimeapi.SecurityProfile_Unconfined:
	}
	return nil
}

// checkProfile checks a profile's type, and that only a profile Localhost has a reference.
func checkProfile(p *runtimeapi.SecurityProfile) error {
	switch kind := p.GetProfileType(); kind {
	case runtimeapi.SecurityProfile_Localhost:
	case runtimeapi.SecurityProfile_RuntimeDefault, runtimeapi.SecurityProfile_Unconfined:
		if p.GetLocalhostRef() != "" {
			return fmt.Errorf("localhost_ref %q is set with profile_type %s: use Localhost", p.GetLocalhostRef(), kind)
		}
	default:
		return fmt.Errorf("profile_type %d is unknown: use RuntimeDefault, Unconfined or Localhost", kind)
	}
	return nil
}

// apparmor sets the AppArmor profile (sputil/apparmor_linux.go). If the node has AppArmor, a
// container without a profile gets the default one, unless it is privileged.
func (b *builder) apparmor() error {
	profile, err := b.appArmorProfile()
	if err == nil {
		err = b.setAppArmor(profile)
	}
	if err != nil {
		return fmt.Errorf("security_context.apparmor: %w", err)
	}
	return nil
}

func (b *builder) setAppArmor(profile *runtimeapi.SecurityProfile) error {
	if !b.Node.AppArmor {
		if profile == nil || profile.GetProfileType() == runtimeapi.SecurityProfile_Unconfined {
			return nil
		}
		return errors.New("apparmor is not supported by the node: start the kernel with apparmor=1 security=apparmor and install apparmor_parser, or use profile Unconfined")
	}
	if err := checkProfile(profile); err != nil {
		return err
	}
	var name string
	switch profile.GetProfileType() { // RuntimeDefault if profile is nil
	case runtimeapi.SecurityProfile_RuntimeDefault:
		if b.security.GetPrivileged() {
			return nil
		}
		name = defaultAppArmor
	case runtimeapi.SecurityProfile_Localhost:
		if name = strings.TrimPrefix(profile.GetLocalhostRef(), localhostPrefix); name == "" {
			return errors.New("localhost_ref is empty: set the name of a profile")
		}
	case runtimeapi.SecurityProfile_Unconfined:
		return nil
	}
	loaded, err := b.Node.AppArmorLoaded(name)
	if err != nil {
		return fmt.Errorf("read whether profile %q is loaded: %w", name, err)
	}
	if !loaded {
		return fmt.Errorf("apparmor profile not found %s: load it with apparmor_parser", name)
	}
	b.spec.Process.ApparmorProfile = name
	return nil
}

// appArmorProfile returns the config's profile, else that of the deprecated field
// apparmor_profile (sputil/securityprofile_linux.go); nil for none.
func (b *builder) appArmorProfile() (*runtimeapi.SecurityProfile, error) {
	if profile := b.security.GetApparmor(); profile != nil {
		return profile, nil
	}
	switch value := b.deprecatedProfile(); value {
	case "":
		return nil, nil
	case "runtime/default", "docker/default":
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case "unconfined":
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	default:
		name, ok := strings.CutPrefix(value, localhostPrefix)
		if !ok {
			return nil, fmt.Errorf("apparmor_profile %q is invalid: write localhost/ before the name of a profile", value)
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: name}, nil
	}
}

// deprecatedProfile returns the field apparmor_profile, which clients of older Kubernetes set.
func (b *builder) deprecatedProfile() string {
	message := b.security.ProtoReflect()
	field := message.Descriptor().Fields().ByName("apparmor_profile")
	if field == nil { // a later version of CRI removed it
		return ""
	}
	return message.Get(field).String()
}
