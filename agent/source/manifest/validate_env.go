package manifest

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// envFields are the fields of a pod that a variable may have as its value
// (pkg/apis/core/validation); beside them single labels and annotations.
var envFields = []string{
	"metadata.name", "metadata.namespace", "metadata.uid",
	"spec.nodeName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

// fileFields are those that a file of a downward API volume may hold.
var fileFields = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
}

// resourceFields are the resources of a container that either may show.
var resourceFields = []string{
	"limits.cpu", "limits.memory", "limits.ephemeral-storage",
	"requests.cpu", "requests.memory", "requests.ephemeral-storage",
}

func (c *checks) env(vars []v1.EnvVar, path *field.Path) {
	for i := range vars {
		at := path.Index(i)
		c.name(at.Child("name"), vars[i].Name, validation.IsRelaxedEnvVarName)
		if strings.IndexByte(vars[i].Value, 0) >= 0 {
			c.add(field.Invalid(at.Child("value"), "", "must not contain a zero byte"))
		}
		if vars[i].ValueFrom != nil {
			c.envSource(&vars[i], at.Child("valueFrom"))
		}
	}
}

func (c *checks) envSource(v *v1.EnvVar, path *field.Path) {
	from, given := v.ValueFrom, 0
	if from.FieldRef != nil {
		given++
		c.fieldRef(from.FieldRef, envFields, path.Child("fieldRef"))
	}
	if from.ResourceFieldRef != nil {
		given++
		c.resourceRef(from.ResourceFieldRef, path.Child("resourceFieldRef"))
	}
	if from.FileKeyRef != nil {
		given++
		c.descending(path.Child("fileKeyRef", "path"), from.FileKeyRef.Path)
	}
	if from.ConfigMapKeyRef != nil {
		given++
	}
	if from.SecretKeyRef != nil {
		given++
	}
	if given != 1 {
		c.add(field.Invalid(path, "", "must name exactly one source"))
	} else if v.Value != "" {
		c.add(field.Invalid(path, "", "may not be given beside value"))
	}
}

func (c *checks) fieldRef(ref *v1.ObjectFieldSelector, allowed []string, path *field.Path) {
	oneOf(c, path.Child("apiVersion"), ref.APIVersion, "v1")
	at := path.Child("fieldPath")
	if ref.FieldPath == "" {
		c.add(field.Required(at, ""))
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
	if strings.HasPrefix(resource, "limits.hugepages-") || strings.HasPrefix(resource, "requests.hugepages-") {
		return
	}
	if !slices.Contains(resourceFields, resource) {
		c.add(field.NotSupported(path.Child("resource"), resource, resourceFields))
	}
	if ref.Divisor.Sign() < 0 {
		c.add(field.Invalid(path.Child("divisor"), ref.Divisor.String(), "must not be negative"))
	}
}
