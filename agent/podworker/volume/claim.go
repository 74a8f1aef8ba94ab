package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const (
	// protectionFinalizer keeps a claim in deletion while pods use it.
	protectionFinalizer = "kubernetes.io/pvc-protection"
	// gidAnnotation is the annotation with the supplemental group of a
	// PersistentVolume.
	gidAnnotation = "pv.beta.kubernetes.io/gid"
)

// claim sets up the PersistentVolume that the claim is bound to. The supported
// types are hostPath and local.
func (s *setup) claim(ctx context.Context, source *v1.PersistentVolumeClaimVolumeSource) (path string, err error) {
	pv, err := s.bound(ctx, source.ClaimName)
	if err != nil {
		return "", err
	}
	switch {
	case ptr.Deref(pv.Spec.VolumeMode, v1.PersistentVolumeFilesystem) == v1.PersistentVolumeBlock:
		return "", unsupported("persistentVolumeClaim with volumeMode Block")
	case pv.Spec.HostPath != nil:
		s.plugin = pluginHostPath
		path, err = hostPath(pv.Spec.HostPath)
	case pv.Spec.Local != nil:
		s.plugin = pluginLocal
		path, err = s.local(ctx, pv, source.ReadOnly && s.onlyReads(source.ClaimName))
	default:
		return "", unsupported("persistentVolumeClaim bound to " + KindOf(&pv.Spec.PersistentVolumeSource))
	}
	if err != nil {
		return "", fmt.Errorf("PersistentVolume %q: %w", pv.Name, err)
	}
	if gid, err := strconv.ParseInt(pv.Annotations[gidAnnotation], 10, 32); err == nil && gid >= 0 && !slices.Contains(s.result.Groups, gid) {
		s.result.Groups = append(s.result.Groups, gid)
	}
	return path, nil
}

// onlyReads reports whether all volumes of the pod with this claim are read-only. They
// share one mount.
func (s *setup) onlyReads(claim string) bool {
	return !slices.ContainsFunc(s.pod.Spec.Volumes, func(v v1.Volume) bool {
		c := v.PersistentVolumeClaim
		return c != nil && c.ClaimName == claim && !c.ReadOnly
	})
}

// bound returns the PersistentVolume of a claim. Claim and volume must refer to each other,
// except that the volume of a claim without a UID needs no claimRef: objects from local
// files have neither a phase nor UIDs.
func (s *setup) bound(ctx context.Context, claim string) (*v1.PersistentVolume, error) {
	c, err := s.in.Objects.PersistentVolumeClaim(ctx, s.pod.Namespace, claim)
	if err != nil {
		return nil, s.missing(err)
	}
	problem := ""
	switch {
	case c.DeletionTimestamp != nil && !slices.Contains(c.Finalizers, protectionFinalizer):
		problem = "is being deleted"
	case c.Status.Phase != "" && c.Status.Phase != v1.ClaimBound:
		problem = fmt.Sprintf("is not bound, but %s", c.Status.Phase)
	case c.Spec.VolumeName == "":
		problem = "is not bound: its spec.volumeName is empty"
	}
	if problem != "" {
		return nil, fmt.Errorf("persistentvolumeclaim %q in namespace %q %s", claim, s.pod.Namespace, problem)
	}
	pv, err := s.in.Objects.PersistentVolume(ctx, c.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("persistentvolumeclaim %q in namespace %q: %w", claim, s.pod.Namespace, err)
	}
	ref := pv.Spec.ClaimRef
	if ref == nil && c.UID == "" {
		return pv, nil
	}
	if ref == nil || ref.Name != c.Name || ref.Namespace != c.Namespace || ref.UID != "" && ref.UID != c.UID {
		return nil, fmt.Errorf("persistentvolume %q is not bound to the persistentvolumeclaim %q in namespace %q", pv.Name, claim, s.pod.Namespace)
	}
	return pv, nil
}

// mountFlags are the supported mount options of a bind mount.
var mountFlags = map[string]uintptr{
	"defaults": 0, "rw": 0, "bind": 0,
	"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
}

// local bind-mounts a local directory into the pod's directory, as the kubelet
// does (pkg/volume/local). Before that it sets the group of its files to the
// pod's fsGroup.
func (s *setup) local(ctx context.Context, pv *v1.PersistentVolume, readOnly bool) (string, error) {
	var flags uintptr
	for _, option := range pv.Spec.MountOptions {
		flag, ok := mountFlags[option]
		if !ok {
			return "", fmt.Errorf("mount option %q is not supported for local volumes", option)
		}
		flags |= flag
	}
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	rel, err := s.dir(dirLocal, pv.Name)
	if err != nil {
		return "", err
	}
	if err := s.makeDir(rel, func() error { return s.pods.Chmod(rel, privateDirMode) }); err != nil {
		return "", err
	}
	path := s.path(rel)
	mounted, err := s.v.mounted(path)
	if err != nil {
		return "", err
	}
	if mounted {
		return path, s.v.addMountFlags(path, flags)
	}
	dir, err := openLocal(pv.Spec.Local.Path)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	if group, ok := s.fsGroup(); ok && flags&unix.MS_RDONLY == 0 {
		if err := s.setVolumeGroup(ctx, pv, dir, group); err != nil {
			return "", err
		}
	}
	return path, s.v.bindFD(dir, path, flags)
}

// openLocal opens the directory of a local volume. It follows symbolic links,
// because the path is set by the operator.
func openLocal(path string) (int, error) {
	if err := checkHostPath(path); err != nil {
		return -1, fmt.Errorf("local.path: %w", err)
	}
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return dir, nil
	case errors.Is(err, unix.ENOTDIR):
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
			return -1, unsupported("local on a block device")
		}
		return -1, fmt.Errorf("local.path %q is not a directory", path)
	}
	return -1, fmt.Errorf("open local.path %q: %w", path, err)
}

// setVolumeGroup sets the group of a local volume's files, unless another pod has the volume
// mounted.
func (s *setup) setVolumeGroup(ctx context.Context, pv *v1.PersistentVolume, dir, group int) error {
	shared, err := s.v.mountedElsewhere(s.uid, pv.Name)
	if err != nil || shared {
		return err
	}
	policy := ptr.Deref(s.pod.Spec.SecurityContext.FSGroupChangePolicy, v1.FSGroupChangeAlways)
	if err := setTreeGroup(ctx, dir, group, policy == v1.FSGroupChangeOnRootMismatch); err != nil {
		return fmt.Errorf("set fsGroup %d: %w", group, err)
	}
	return nil
}
