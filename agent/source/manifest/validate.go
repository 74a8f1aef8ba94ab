package manifest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/pod"
)

// Limits of the API (pkg/apis/core/validation) and of the file system.
const (
	maxAnnotations = 256 << 10 // bytes of keys and values
	maxNameservers = 3
	maxSearches    = 32
	maxSearchList  = 2048 // bytes of all, separated by spaces
	maxHostname    = 64
	maxFileName    = 255 // NAME_MAX
)

// Validate validates a defaulted pod. Everything that becomes a path, a name, a
// line of a file or a number for the kernel must be safe, and every reference
// within the pod must resolve. For these it follows pkg/apis/core/validation.
// It leaves out checks that matter only to a scheduler or an API server.
func Validate(p *v1.Pod) field.ErrorList {
	c := &checks{}
	c.metadata(p)
	c.spec(&p.Spec, field.NewPath("spec"))
	return c.errs
}

func (c *checks) metadata(p *v1.Pod) {
	path := field.NewPath("metadata")
	c.name(path.Child("name"), p.Name, validation.IsDNS1123Subdomain)
	c.name(path.Child("namespace"), p.Namespace, validation.IsDNS1123Label)
	c.invalid(!IsUID(p.UID), path.Child("uid"), p.UID, "must have at most 63 letters, digits and '-', with a letter or digit at both ends")
	// The pod's log directory is named NAMESPACE_NAME_UID.
	if length := len(p.Namespace) + len(p.Name) + len(p.UID) + 2; length > maxFileName {
		c.add(field.Invalid(path.Child("name"), p.Name, fmt.Sprintf("makes the log directory's name %d bytes long, more than %d", length, maxFileName)))
	}
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		c.must(path.Child("labels").Key(key), key, validation.IsQualifiedName)
		c.must(path.Child("labels").Key(key), p.Labels[key], validation.IsValidLabelValue)
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		c.must(path.Child("annotations").Key(key), strings.ToLower(key), validation.IsQualifiedName)
		c.appArmorAnnotation(p, key, path.Child("annotations").Key(key))
		size += len(key) + len(p.Annotations[key])
	}
	if size > maxAnnotations {
		c.add(field.TooLong(path.Child("annotations"), "", maxAnnotations))
	}
}

func (c *checks) spec(spec *v1.PodSpec, path *field.Path) {
	oneOf(c, path.Child("restartPolicy"), spec.RestartPolicy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	oneOf(c, path.Child("dnsPolicy"), spec.DNSPolicy, v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone)
	if deadline := spec.ActiveDeadlineSeconds; deadline != nil && (*deadline < 1 || *deadline > math.MaxInt32) {
		c.add(field.Invalid(path.Child("activeDeadlineSeconds"), *deadline, validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	volumes := c.volumes(spec.Volumes, path.Child("volumes"))
	c.containers(spec, volumes, path)
	c.podSecurity(spec, path)
	c.scheduling(spec, path)
	c.hostnames(spec, path)
	c.dns(spec, path.Child("dnsConfig"))
	c.podResources(spec, path.Child("resources"))
	c.overhead(spec.Overhead, path.Child("overhead"))
	if spec.OS != nil {
		oneOf(c, path.Child("os", "name"), spec.OS.Name, v1.Linux, v1.Windows)
	}
	c.optional(path.Child("serviceAccountName"), spec.ServiceAccountName, validation.IsDNS1123Subdomain)
	for i, secret := range spec.ImagePullSecrets {
		c.optional(path.Child("imagePullSecrets").Index(i).Child("name"), secret.Name, validation.IsDNS1123Subdomain)
	}
	if spec.RuntimeClassName != nil {
		c.name(path.Child("runtimeClassName"), *spec.RuntimeClassName, validation.IsDNS1123Subdomain)
	}
	for i, gate := range spec.ReadinessGates {
		c.name(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType), validation.IsQualifiedName)
	}
}

// hostnames checks the pod's host name and the entries of its /etc/hosts.
func (c *checks) hostnames(spec *v1.PodSpec, path *field.Path) {
	c.optional(path.Child("hostname"), spec.Hostname, validation.IsDNS1123Label)
	c.optional(path.Child("subdomain"), spec.Subdomain, validation.IsDNS1123Label)
	if name := spec.HostnameOverride; name != nil {
		at := path.Child("hostnameOverride")
		c.must(at, *name, validation.IsDNS1123Subdomain)
		if len(*name) > maxHostname {
			c.add(field.TooLong(at, "", maxHostname))
		}
		c.forbid(spec.HostNetwork, at, "may not be specified when hostNetwork is true")
		c.forbid(ptr.Deref(spec.SetHostnameAsFQDN, false), at, "may not be specified when setHostnameAsFQDN is true")
	}
	for i, alias := range spec.HostAliases {
		at := path.Child("hostAliases").Index(i)
		c.address(at.Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			c.must(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain)
		}
	}
}

// dns checks the content of the pod's /etc/resolv.conf.
func (c *checks) dns(spec *v1.PodSpec, path *field.Path) {
	config := spec.DNSConfig
	if spec.DNSPolicy == v1.DNSNone && (config == nil || len(config.Nameservers) == 0) {
		c.add(field.Required(path.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None"))
		return
	}
	if config == nil {
		return
	}
	if n := len(config.Nameservers); n > maxNameservers {
		c.add(field.TooMany(path.Child("nameservers"), n, maxNameservers))
	}
	for i, server := range config.Nameservers {
		c.address(path.Child("nameservers").Index(i), server)
	}
	if n := len(config.Searches); n > maxSearches {
		c.add(field.TooMany(path.Child("searches"), n, maxSearches))
	}
	if len(strings.Join(config.Searches, " ")) > maxSearchList {
		c.add(field.TooLong(path.Child("searches"), "", maxSearchList))
	}
	for i, search := range config.Searches {
		if search != "." {
			c.must(path.Child("searches").Index(i), strings.TrimSuffix(search, "."), validation.IsDNS1123SubdomainWithUnderscore)
		}
	}
	for i, option := range config.Options {
		at := path.Child("options").Index(i)
		c.required(at.Child("name"), option.Name)
		c.noControl(at.Child("name"), option.Name)
		if option.Value != nil {
			c.noControl(at.Child("value"), *option.Value)
		}
	}
}

// validateStatic rejects fields that a static pod cannot have. The kubelet also
// rejects every reference to another API object (HasAPIObjectReference in
// pkg/api/pod/util.go). Here, references to ConfigMaps, Secrets and volumes are
// accepted, since local files can define these objects, and the pod waits until
// they exist. ResourceClaims need a cluster.
func validateStatic(p *v1.Pod) field.ErrorList {
	c := &checks{}
	spec, path := &p.Spec, field.NewPath("spec")
	c.forbid(len(spec.ResourceClaims) > 0, path.Child("resourceClaims"), "static pods may not use ResourceClaims")
	c.forbid(len(spec.EphemeralContainers) > 0, path.Child("ephemeralContainers"), "cannot be set on create")
	c.forbid(len(spec.SchedulingGates) > 0, path.Child("schedulingGates"), "static pods are not scheduled")
	eachContainer(spec, path, func(container *v1.Container, at *field.Path) {
		c.forbid(len(container.Resources.Claims) > 0, at.Child("resources", "claims"), "static pods may not use ResourceClaims")
	})
	return c.errs
}

// eachContainer calls f with every container of all three kinds and its path.
func eachContainer(spec *v1.PodSpec, path *field.Path, f func(*v1.Container, *field.Path)) {
	for i := range spec.InitContainers {
		f(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		f(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		f(pod.EphemeralAsContainer(&spec.EphemeralContainers[i]), path.Child("ephemeralContainers").Index(i))
	}
}
