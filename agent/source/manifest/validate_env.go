package manifest

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// envFields are the pod fields that an environment variable may reference
// (pkg/apis/core/validation), in addition to single labels and annotations.
var envFields = []string{
	"metadata.name", "metadata.namespace", "metadata.uid",
	"spec.nodeName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

// fileFields are the pod fields that a downward API volume may reference.
var fileFields = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
}

// resourceFields are the container resources that environment variables and downward API
// volumes may reference, in addition to hugepages.
var resourceFields = []string{
	"limits.cpu", "limits.memory", "limits.ephemeral-storage",
	"requests.cpu", "requests.memory", "requests.ephemeral-storage",
}

// Divisors that a resourceFieldRef may have.
var (
	cpuDivisors  = []string{"1m", "1"}
	byteDivisors = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)

func (c *checks) env(vars []v1.EnvVar, volumes map[string]*v1.Volume, path *field.Path) {
	for i := range vars {
		at := path.Index(i)
		c.name(at.Child("name"), vars[i].Name, validation.IsRelaxedEnvVarName)
		c.invalid(strings.IndexByte(vars[i].Value, 0) >= 0, at.Child("value"), "", "must not contain a zero byte")
		if vars[i].ValueFrom != nil {
			c.envSource(&vars[i], volumes, at.Child("valueFrom"))
		}
	}
}

func (c *checks) envSource(v *v1.EnvVar, volumes map[string]*v1.Volume, path *field.Path) {
	from := v.ValueFrom
	if from.FieldRef != nil {
		c.fieldRef(from.FieldRef, envFields, path.Child("fieldRef"))
	}
	if from.ResourceFieldRef != nil {
		c.resourceRef(from.ResourceFieldRef, path.Child("resourceFieldRef"))
	}
	if from.FileKeyRef != nil {
		c.fileKey(from.FileKeyRef, volumes, path.Child("fileKeyRef"))
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		c.objectKey(ref.Name, ref.Key, path.Child("configMapKeyRef"))
	}
	if ref := from.SecretKeyRef; ref != nil {
		c.objectKey(ref.Name, ref.Key, path.Child("secretKeyRef"))
	}
	switch given := len(setFields(from)); {
	case given == 0:
		c.add(field.Invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case v.Value != "":
		c.add(field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case given > 1:
		c.add(field.Invalid(path, "", "may not have more than one field specified at a time"))
	}
}

// objectKey checks a key of a ConfigMap or a Secret.
func (c *checks) objectKey(name, key string, path *field.Path) {
	c.name(path.Child("name"), name, validation.IsDNS1123Subdomain)
	c.name(path.Child("key"), key, validation.IsConfigMapKey)
}

// fileKey checks a reference to a variable in a file that another container
// writes into an emptyDir.
func (c *checks) fileKey(ref *v1.FileKeySelector, volumes map[string]*v1.Volume, path *field.Path) {
	c.name(path.Child("key"), ref.Key, validation.IsRelaxedEnvVarName)
	c.required(path.Child("path"), ref.Path)
	c.noBacksteps(path.Child("path"), ref.Path)
	at := path.Child("volumeName")
	if ref.VolumeName == "" {
		c.add(field.Required(at, ""))
	} else if volume, ok := volumes[ref.VolumeName]; !ok {
		c.add(field.NotFound(at, ref.VolumeName))
	} else if volume.EmptyDir == nil {
		c.add(field.Invalid(at, ref.VolumeName, "referenced volume must be of type emptyDir"))
	}
}

func (c *checks) envFrom(sources []v1.EnvFromSource, path *field.Path) {
	for i := range sources {
		source, at, given := &sources[i], path.Index(i), 0
		c.optional(at.Child("prefix"), source.Prefix, validation.IsRelaxedEnvVarName)
		if source.ConfigMapRef != nil {
			given++
			c.name(at.Child("configMapRef", "name"), source.ConfigMapRef.Name, validation.IsDNS1123Subdomain)
		}
		if source.SecretRef != nil {
			given++
			c.name(at.Child("secretRef", "name"), source.SecretRef.Name, validation.IsDNS1123Subdomain)
		}
		if given == 0 {
			c.add(field.Invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"))
		} else if given > 1 {
			c.add(field.Invalid(at, "", "may not have more than one field specified at a time"))
		}
	}
}

func (c *checks) fieldRef(ref *v1.ObjectFieldSelector, allowed []string, path *field.Path) {
	oneOf(c, path.Child("apiVersion"), ref.APIVersion, "v1")
	at := path.Child("fieldPath")
	if !c.required(at, ref.FieldPath) {
		return
	}
	if name, key, ok := subscript(ref.FieldPath); ok {
		if name != "metadata.labels" && name != "metadata.annotations" {
			c.add(field.NotSupported(at, ref.FieldPath, allowed))
		}
		c.must(at, strings.ToLower(key), validation.IsQualifiedName)
		return
	}
	oneOf(c, at, ref.FieldPath, allowed...)
}

// subscript splits metadata.labels['KEY'].
func subscript(path string) (name, key string, ok bool) {
	name, rest, ok := strings.Cut(path, "['")
	if !ok {
		return "", "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return name, key, ok
}

func (c *checks) resourceRef(ref *v1.ResourceFieldSelector, path *field.Path) {
	resource := ref.Resource
	huge := strings.HasPrefix(resource, "limits.hugepages-") || strings.HasPrefix(resource, "requests.hugepages-")
	if !huge && !slices.Contains(resourceFields, resource) {
		c.add(field.NotSupported(path.Child("resource"), resource, resourceFields))
		return
	}
	divisors := byteDivisors
	if strings.HasSuffix(resource, ".cpu") {
		divisors = cpuDivisors
	}
	if !ref.Divisor.IsZero() && !slices.Contains(divisors, ref.Divisor.String()) {
		c.add(field.NotSupported(path.Child("divisor"), ref.Divisor.String(), divisors))
	}
}
