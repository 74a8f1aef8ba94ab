package manifest

import (
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volumeKinds are the field names, as in the manifest, of the sources that a
// volume gives.
func volumeKinds(source *v1.VolumeSource) []string {
	var kinds []string
	value := reflect.ValueOf(source).Elem()
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			kinds = append(kinds, name)
		}
	}
	return kinds
}

// volumes checks the pod's volumes and answers those that a container may
// refer to, by name.
func (c *checks) volumes(volumes []v1.Volume, path *field.Path) map[string]*v1.Volume {
	byName := make(map[string]*v1.Volume, len(volumes))
	names := make(map[string]struct{}, len(volumes))
	for i := range volumes {
		volume, at := &volumes[i], path.Index(i)
		c.name(at.Child("name"), volume.Name, validation.IsDNS1123Label)
		c.once(at.Child("name"), volume.Name, names)
		byName[volume.Name] = volume
		if kinds := volumeKinds(&volume.VolumeSource); len(kinds) > 1 {
			c.add(field.Forbidden(at.Child(kinds[1]), "a volume has one source, this one has "+kinds[0]+" already"))
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
		if v.Image.Reference == "" {
			c.add(field.Required(path.Child("image", "reference"), ""))
		}
		oneOf(c, path.Child("image", "pullPolicy"), v.Image.PullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	}
	if v.DownwardAPI != nil {
		c.fileMode(path.Child("downwardAPI", "defaultMode"), v.DownwardAPI.DefaultMode)
		c.files(v.DownwardAPI.Items, path.Child("downwardAPI", "items"))
	}
	if v.Projected != nil {
		c.fileMode(path.Child("projected", "defaultMode"), v.Projected.DefaultMode)
		for i := range v.Projected.Sources {
			if api := v.Projected.Sources[i].DownwardAPI; api != nil {
				c.files(api.Items, path.Child("projected", "sources").Index(i).Child("downwardAPI", "items"))
			}
		}
	}
}

func (c *checks) hostPath(v *v1.HostPathVolumeSource, path *field.Path) {
	at := path.Child("path")
	switch {
	case v.Path == "":
		c.add(field.Required(at, ""))
	case !strings.HasPrefix(v.Path, "/"):
		c.add(field.Invalid(at, v.Path, "must be an absolute path"))
	default:
		c.noBacksteps(at, v.Path)
	}
	if v.Type != nil {
		oneOf(c, path.Child("type"), *v.Type,
			v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate,
			v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)
	}
}

func (c *checks) emptyDir(v *v1.EmptyDirVolumeSource, path *field.Path) {
	if v.SizeLimit != nil && v.SizeLimit.Sign() < 0 {
		c.add(field.Invalid(path.Child("sizeLimit"), v.SizeLimit.String(), "must not be negative"))
	}
	if !strings.HasPrefix(string(v.Medium), string(v1.StorageMediumHugePagesPrefix)) {
		oneOf(c, path.Child("medium"), v.Medium, v1.StorageMediumDefault, v1.StorageMediumMemory, v1.StorageMediumHugePages)
	}
}

// files checks the files of a downward API volume. Names that begin with
// ".." are those that the volume's atomic writer uses itself.
func (c *checks) files(items []v1.DownwardAPIVolumeFile, path *field.Path) {
	for i := range items {
		item, at := &items[i], path.Index(i)
		if item.Path == "" {
			c.add(field.Required(at.Child("path"), ""))
		} else if strings.HasPrefix(item.Path, "..") && !strings.HasPrefix(item.Path, "../") {
			c.add(field.Invalid(at.Child("path"), item.Path, "must not start with '..'"))
		}
		c.descending(at.Child("path"), item.Path)
		c.fileMode(at.Child("mode"), item.Mode)
		switch {
		case (item.FieldRef == nil) == (item.ResourceFieldRef == nil):
			c.add(field.Invalid(at, "", "must name exactly one of fieldRef and resourceFieldRef"))
		case item.FieldRef != nil:
			c.fieldRef(item.FieldRef, fileFields, at.Child("fieldRef"))
		default:
			c.resourceRef(item.ResourceFieldRef, at.Child("resourceFieldRef"))
		}
	}
}

func (c *checks) mounts(mounts []v1.VolumeMount, volumes map[string]*v1.Volume, path *field.Path) {
	points := make(map[string]struct{}, len(mounts))
	for i := range mounts {
		mount, at := &mounts[i], path.Index(i)
		if mount.Name == "" {
			c.add(field.Required(at.Child("name"), ""))
		} else if _, ok := volumes[mount.Name]; !ok {
			c.add(field.NotFound(at.Child("name"), mount.Name))
		}
		if mount.MountPath == "" {
			c.add(field.Required(at.Child("mountPath"), ""))
		} else {
			c.noControl(at.Child("mountPath"), mount.MountPath)
			c.once(at.Child("mountPath"), mount.MountPath, points)
		}
		c.descending(at.Child("subPath"), mount.SubPath)
		c.descending(at.Child("subPathExpr"), mount.SubPathExpr)
		if mount.SubPath != "" && mount.SubPathExpr != "" {
			c.add(field.Forbidden(at.Child("subPathExpr"), "may not be given beside subPath"))
		}
		if mount.MountPropagation != nil {
			oneOf(c, at.Child("mountPropagation"), *mount.MountPropagation,
				v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)
		}
	}
}
