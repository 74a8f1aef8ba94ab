package manifest

import (
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// setFields returns the manifest field names of the members of a union that are
// set. union points to a struct with nothing but pointers.
func setFields(union any) []string {
	var kinds []string
	value := reflect.ValueOf(union).Elem()
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			kinds = append(kinds, name)
		}
	}
	return kinds
}

// volumes checks the pod's volumes and returns them by name.
func (c *checks) volumes(volumes []v1.Volume, path *field.Path) map[string]*v1.Volume {
	byName := make(map[string]*v1.Volume, len(volumes))
	names := make(map[string]struct{}, len(volumes))
	for i := range volumes {
		volume, at := &volumes[i], path.Index(i)
		c.name(at.Child("name"), volume.Name, validation.IsDNS1123Label)
		c.once(at.Child("name"), volume.Name, names)
		byName[volume.Name] = volume
		if kinds := setFields(&volume.VolumeSource); len(kinds) > 1 {
			c.add(field.Forbidden(at.Child(kinds[1]), "may not specify more than 1 volume type"))
		}
		c.volume(volume, at)
	}
	return byName
}

func (c *checks) volume(v *v1.Volume, path *field.Path) {
	if v.HostPath != nil {
		c.hostPath(v.HostPath, path.Child("hostPath"))
	}
	if v.EmptyDir != nil {
		c.emptyDir(v.EmptyDir, path.Child("emptyDir"))
	}
	if v.Image != nil {
		c.required(path.Child("image", "reference"), v.Image.Reference)
		c.noControl(path.Child("image", "reference"), v.Image.Reference)
		oneOf(c, path.Child("image", "pullPolicy"), v.Image.PullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	}
	if v.Secret != nil {
		at := path.Child("secret")
		c.name(at.Child("secretName"), v.Secret.SecretName, validation.IsDNS1123Subdomain)
		c.fileMode(at.Child("defaultMode"), v.Secret.DefaultMode)
		c.keys(v.Secret.Items, nil, at.Child("items"))
	}
	if v.ConfigMap != nil {
		at := path.Child("configMap")
		c.name(at.Child("name"), v.ConfigMap.Name, validation.IsDNS1123Subdomain)
		c.fileMode(at.Child("defaultMode"), v.ConfigMap.DefaultMode)
		c.keys(v.ConfigMap.Items, nil, at.Child("items"))
	}
	if v.PersistentVolumeClaim != nil {
		c.name(path.Child("persistentVolumeClaim", "claimName"), v.PersistentVolumeClaim.ClaimName, validation.IsDNS1123Subdomain)
	}
	if v.DownwardAPI != nil {
		c.fileMode(path.Child("downwardAPI", "defaultMode"), v.DownwardAPI.DefaultMode)
		c.files(v.DownwardAPI.Items, nil, path.Child("downwardAPI", "items"))
	}
	if v.Projected != nil {
		c.projected(v.Projected, path.Child("projected"))
	}
}

func (c *checks) hostPath(v *v1.HostPathVolumeSource, path *field.Path) {
	at := path.Child("path")
	switch {
	case v.Path == "":
		c.add(field.Required(at, ""))
		return
	case !strings.HasPrefix(v.Path, "/"):
		c.add(field.Invalid(at, v.Path, "must be an absolute path"))
	default:
		c.noBacksteps(at, v.Path)
	}
	oneOfOptional(c, path.Child("type"), v.Type,
		v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate,
		v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)
}

func (c *checks) emptyDir(v *v1.EmptyDirVolumeSource, path *field.Path) {
	if v.SizeLimit != nil && v.SizeLimit.Sign() < 0 {
		c.add(field.Invalid(path.Child("sizeLimit"), v.SizeLimit.String(), "must not be negative"))
	}
	if !strings.HasPrefix(string(v.Medium), string(v1.StorageMediumHugePagesPrefix)) {
		oneOf(c, path.Child("medium"), v.Medium, v1.StorageMediumDefault, v1.StorageMediumMemory, v1.StorageMediumHugePages)
	}
}

// files checks the files of a downward API volume.
func (c *checks) files(items []v1.DownwardAPIVolumeFile, taken *[]target, path *field.Path) {
	for i := range items {
		item, at := &items[i], path.Index(i)
		c.volumePath(item.Path, taken, at.Child("path"))
		c.fileMode(at.Child("mode"), item.Mode)
		switch {
		case item.FieldRef == nil && item.ResourceFieldRef == nil:
			c.add(field.Required(at, "one of fieldRef and resourceFieldRef is required"))
		case item.FieldRef != nil && item.ResourceFieldRef != nil:
			c.add(field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		case item.FieldRef != nil:
			c.fieldRef(item.FieldRef, fileFields, at.Child("fieldRef"))
		default:
			c.required(at.Child("resourceFieldRef", "containerName"), item.ResourceFieldRef.ContainerName)
			c.resourceRef(item.ResourceFieldRef, at.Child("resourceFieldRef"))
		}
	}
}

func (c *checks) mounts(container *v1.Container, volumes map[string]*v1.Volume, path *field.Path) {
	points := make(map[string]struct{}, len(container.VolumeMounts))
	for i := range container.VolumeMounts {
		mount, at := &container.VolumeMounts[i], path.Index(i)
		if _, ok := volumes[mount.Name]; c.required(at.Child("name"), mount.Name) && !ok {
			c.add(field.NotFound(at.Child("name"), mount.Name))
		}
		if c.required(at.Child("mountPath"), mount.MountPath) {
			c.noControl(at.Child("mountPath"), mount.MountPath)
			if _, taken := points[mount.MountPath]; taken {
				c.add(field.Invalid(at.Child("mountPath"), mount.MountPath, "must be unique"))
			}
			points[mount.MountPath] = struct{}{}
		}
		c.descending(at.Child("subPath"), mount.SubPath)
		c.descending(at.Child("subPathExpr"), mount.SubPathExpr)
		c.invalid(mount.SubPath != "" && mount.SubPathExpr != "", at.Child("subPathExpr"), mount.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
		c.propagation(mount, container, at)
	}
}

// propagation checks mount propagation and recursive read-only mounts.
func (c *checks) propagation(mount *v1.VolumeMount, container *v1.Container, path *field.Path) {
	none := mount.MountPropagation == nil || *mount.MountPropagation == v1.MountPropagationNone
	if !none {
		at := path.Child("mountPropagation")
		oneOf(c, at, *mount.MountPropagation, v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)
		privileged := ptr.Deref(ptr.Deref(container.SecurityContext, v1.SecurityContext{}).Privileged, false)
		c.forbid(*mount.MountPropagation == v1.MountPropagationBidirectional && !privileged,
			at, "Bidirectional mount propagation is available only to privileged containers")
	}
	if mount.RecursiveReadOnly == nil {
		return
	}
	at := path.Child("recursiveReadOnly")
	oneOf(c, at, *mount.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)
	if *mount.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return
	}
	c.forbid(!mount.ReadOnly, at, "may only be specified when readOnly is true")
	c.forbid(!none, at, "may only be specified when mountPropagation is None or not specified")
}

// devices checks the volumes that a container uses as block devices.
func (c *checks) devices(container *v1.Container, volumes map[string]*v1.Volume, path *field.Path) {
	paths := make(map[string]struct{}, len(container.VolumeDevices))
	for i := range container.VolumeDevices {
		device, at := &container.VolumeDevices[i], path.Index(i)
		if _, ok := volumes[device.Name]; !ok {
			c.add(field.NotFound(at.Child("name"), device.Name))
		}
		if !c.required(at.Child("devicePath"), device.DevicePath) {
			continue
		}
		c.noBacksteps(at.Child("devicePath"), device.DevicePath)
		c.once(at.Child("devicePath"), device.DevicePath, paths)
	}
}
