package spec

import (
	"errors"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

func destinations(s *specs.Spec) any {
	var out []string
	for _, m := range s.Mounts {
		out = append(out, m.Destination)
	}
	return out
}

// at returns the mounts at a path.
func at(path string) func(*specs.Spec) any {
	return func(s *specs.Spec) any {
		var out []specs.Mount
		for _, m := range s.Mounts {
			if m.Destination == path {
				out = append(out, m)
			}
		}
		return out
	}
}

func mounts(all ...*runtimeapi.Mount) func(*Container) {
	return func(c *Container) { c.Config.Mounts = all }
}

func boundAt(path, source string, options ...string) []specs.Mount {
	return []specs.Mount{{Destination: path, Type: "bind", Source: source, Options: append([]string{"rbind"}, options...)}}
}

var (
	uidMap = []*runtimeapi.IDMapping{{HostId: 70000, ContainerId: 0, Length: 65536}}
	gidMap = []*runtimeapi.IDMapping{{HostId: 80000, ContainerId: 0, Length: 65536}}
)

const (
	bidirectional = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	hostTo        = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
)

func TestMountOrder(t *testing.T) {
	run(t, []row{
		{name: "defaults and files", part: destinations, want: []string{
			"/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys", "/sys/fs/cgroup",
			"/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/dev/shm",
		}},
		{name: "by depth, else in order", change: func(c *Container) {
			c.Files = Files{}
			mounts(
				&runtimeapi.Mount{ContainerPath: "/a/b/c", HostPath: "/1"}, &runtimeapi.Mount{ContainerPath: "/z/", HostPath: "/2"},
				&runtimeapi.Mount{ContainerPath: "/a//b", HostPath: "/3"}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: "/4"},
			)(c)
		}, part: destinations, want: []string{
			"/proc", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/sys", "/sys/fs/cgroup", "/z/", "/a", "/a//b", "/a/b/c",
		}},
		{name: "over default mounts", change: func(c *Container) {
			c.Files = Files{}
			mounts(&runtimeapi.Mount{ContainerPath: "/sys/fs/cgroup/", HostPath: "/1"}, &runtimeapi.Mount{ContainerPath: "/proc", HostPath: "/2"})(c)
		}, part: destinations, want: []string{"/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/sys", "/proc", "/sys/fs/cgroup/"}},
		{name: "over /dev", change: func(c *Container) {
			c.Files = Files{}
			mounts(&runtimeapi.Mount{ContainerPath: "/dev/", HostPath: "/dev"})(c)
		}, part: destinations, want: []string{"/proc", "/sys", "/sys/fs/cgroup", "/dev/"}},
		{name: "over files", change: func(c *Container) {
			mounts(&runtimeapi.Mount{ContainerPath: "/etc/hosts/", HostPath: "/1"}, &runtimeapi.Mount{ContainerPath: "/dev/shm", HostPath: "/2"})(c)
		}, part: destinations, want: []string{
			"/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys", "/sys/fs/cgroup", "/etc/hosts/", "/dev/shm", "/etc/hostname", "/etc/resolv.conf",
		}},
		{name: "options of default mounts", part: func(s *specs.Spec) any { return s.Mounts[:5] }, want: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		}},
		{name: "/dev/shm without the sandbox's", change: func(c *Container) { c.Files = Files{} }, part: at("/dev/shm"), want: []specs.Mount{
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		}},
	})
}

func TestBindMounts(t *testing.T) {
	propagation := func(s *specs.Spec) any { return s.Linux.RootfsPropagation }
	x := func(m *runtimeapi.Mount) *runtimeapi.Mount { m.ContainerPath = "/x"; return m }
	run(t, []row{
		{name: "writable", change: mounts(x(&runtimeapi.Mount{HostPath: "/h"})), part: at("/x"), want: boundAt("/x", "/h", "rprivate", "rw")},
		{name: "read-only", change: mounts(x(&runtimeapi.Mount{HostPath: "/h", Readonly: true})), part: at("/x"), want: boundAt("/x", "/h", "rprivate", "ro")},
		{name: "link", change: mounts(x(&runtimeapi.Mount{HostPath: "/link"})), part: at("/x"), want: boundAt("/x", "/real", "rprivate", "rw")},
		{name: "no host path", change: mounts(x(&runtimeapi.Mount{})), err: `"/x": host_path is empty`},
		{name: "options", change: mounts(x(&runtimeapi.Mount{HostPath: "/h", MountOptions: []string{"noexec", "nodev", "nosuid"}})), part: at("/x"), want: boundAt("/x", "/h", "rprivate", "rw", "noexec", "nodev", "nosuid")},
		{name: "option that gives rights", change: mounts(x(&runtimeapi.Mount{HostPath: "/h", MountOptions: []string{"suid"}})), err: `mount_options: "suid"`},
		{name: "read-only root leaves volumes writable", change: func(c *Container) {
			security(c).ReadonlyRootfs = true
			mounts(x(&runtimeapi.Mount{HostPath: "/h"}))(c)
		}, part: at("/x"), want: boundAt("/x", "/h", "rprivate", "rw")},

		{name: "private root", change: mounts(x(&runtimeapi.Mount{HostPath: "/h"})), part: propagation, want: ""},
		{name: "unknown propagation", change: mounts(x(&runtimeapi.Mount{HostPath: "/h", Propagation: 9})), part: at("/x"), want: boundAt("/x", "/h", "rprivate", "rw")},
		{name: "bidirectional", change: mounts(x(&runtimeapi.Mount{HostPath: "/shared/a", Propagation: bidirectional})), part: at("/x"), want: boundAt("/x", "/shared/a", "rshared", "rw")},
		{name: "bidirectional root", change: mounts(x(&runtimeapi.Mount{HostPath: "/shared/a", Propagation: bidirectional})), part: propagation, want: "rshared"},
		{name: "bidirectional of a slave", change: mounts(x(&runtimeapi.Mount{HostPath: "/slave", Propagation: bidirectional})), err: `path "/slave" is mounted on "/slave", which is not shared`},
		{name: "bidirectional of a private mount", change: mounts(x(&runtimeapi.Mount{HostPath: "/h", Propagation: bidirectional})), err: "which is not shared"},
		{name: "bidirectional of nothing", change: mounts(x(&runtimeapi.Mount{HostPath: "/gone", Propagation: bidirectional})), err: `find mount of "/gone"`},
		{name: "from the host, shared", change: mounts(x(&runtimeapi.Mount{HostPath: "/shared/a", Propagation: hostTo})), part: at("/x"), want: boundAt("/x", "/shared/a", "rslave", "rw")},
		{name: "from the host, slave", change: mounts(x(&runtimeapi.Mount{HostPath: "/slave/a", Propagation: hostTo})), part: propagation, want: "rslave"},
		{name: "from the host, private", change: mounts(x(&runtimeapi.Mount{HostPath: "/h", Propagation: hostTo})), err: "which is not shared as propagation HostToContainer"},
		{name: "shared root stays shared", change: mounts(
			x(&runtimeapi.Mount{HostPath: "/shared/a", Propagation: bidirectional}), &runtimeapi.Mount{ContainerPath: "/y", HostPath: "/slave", Propagation: hostTo},
		), part: propagation, want: "rshared"},
		{name: "slave root becomes shared", change: mounts(
			&runtimeapi.Mount{ContainerPath: "/w", HostPath: "/slave", Propagation: hostTo}, x(&runtimeapi.Mount{HostPath: "/shared/a", Propagation: bidirectional}),
		), part: propagation, want: "rshared"},
		{name: "propagation of what the link names", change: mounts(x(&runtimeapi.Mount{HostPath: "/shared/link", Propagation: bidirectional})), part: at("/x"), want: boundAt("/x", "/shared/real", "rshared", "rw")},

		{name: "rro", change: mounts(x(&runtimeapi.Mount{HostPath: "/h", Readonly: true, RecursiveReadOnly: true})), part: at("/x"), want: boundAt("/x", "/h", "rprivate", "rro")},
		{name: "rro of a writable mount", change: mounts(x(&runtimeapi.Mount{HostPath: "/h", RecursiveReadOnly: true})), err: "recursive_read_only conflicts"},
		{name: "rro with propagation", change: mounts(x(&runtimeapi.Mount{HostPath: "/slave", Readonly: true, RecursiveReadOnly: true, Propagation: hostTo})), err: "recursive_read_only needs private propagation"},
		{name: "rro without the handler's", change: func(c *Container) {
			c.Handler.RecursiveReadOnly = false
			mounts(x(&runtimeapi.Mount{HostPath: "/h", Readonly: true, RecursiveReadOnly: true}))(c)
		}, err: crierrors.ErrRROUnsupported.Error()},

		{name: "ID mappings", change: mounts(x(&runtimeapi.Mount{HostPath: "/h", UidMappings: uidMap, GidMappings: gidMap})), part: at("/x"), want: []specs.Mount{{
			Destination: "/x", Type: "bind", Source: "/h", Options: []string{"rbind", "rprivate", "rw"},
			UIDMappings: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 70000, Size: 65536}},
			GIDMappings: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 80000, Size: 65536}},
		}}},
		{name: "ID mappings without the handler's", change: func(c *Container) {
			c.Handler.IDMapMounts = false
			mounts(x(&runtimeapi.Mount{HostPath: "/h", GidMappings: gidMap}))(c)
		}, err: "idmapped mounts"},
		{name: "ID mappings of users without the handler's", change: func(c *Container) {
			c.Handler.IDMapMounts = false
			mounts(x(&runtimeapi.Mount{HostPath: "/h", UidMappings: uidMap}))(c)
		}, err: "idmapped mounts"},
		{name: "no mappings need no handler", change: func(c *Container) {
			c.Handler = Handler{}
			mounts(x(&runtimeapi.Mount{HostPath: "/h"}))(c)
		}, part: at("/x"), want: boundAt("/x", "/h", "rprivate", "rw")},
	})
}

func TestCgroupMount(t *testing.T) {
	options := func(s *specs.Spec) any { return at("/sys/fs/cgroup")(s).([]specs.Mount)[0] }
	want := func(access string, more ...string) specs.Mount {
		return specs.Mount{
			Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
			Options: append([]string{"nosuid", "noexec", "nodev", "relatime", access}, more...),
		}
	}
	run(t, []row{
		{name: "own namespace", part: options, want: want("ro")},
		{name: "host's namespace", change: privileged, part: options, want: want("rw", "nsdelegate", "memory_recursiveprot")},
		{name: "host's namespace, unknown options", change: func(c *Container) {
			privileged(c)
			c.Node.MountOf = func(string) (*mountinfo.Info, error) { return nil, errors.New("no mount") }
		}, part: options, want: want("rw")},
	})
}

func TestFiles(t *testing.T) {
	mapped := func(path, source string, options ...string) []specs.Mount {
		m := boundAt(path, source, options...)
		m[0].UIDMappings = []specs.LinuxIDMapping{{HostID: 70000, Size: 65536}}
		m[0].GIDMappings = []specs.LinuxIDMapping{{HostID: 80000, Size: 65536}}
		return m
	}
	readonly := func(c *Container) { security(c).ReadonlyRootfs = true }
	run(t, []row{
		{name: "hostname", part: at("/etc/hostname"), want: boundAt("/etc/hostname", "/pins/s1/hostname", "rprivate", "rw")},
		{name: "hosts", change: readonly, part: at("/etc/hosts"), want: boundAt("/etc/hosts", "/pins/s1/hosts", "rprivate", "ro")},
		{name: "resolv.conf", change: readonly, part: at("/etc/resolv.conf"), want: boundAt("/etc/resolv.conf", "/pins/s1/resolv.conf", "rprivate", "ro")},
		{name: "read-only hostname", change: readonly, part: at("/etc/hostname"), want: boundAt("/etc/hostname", "/pins/s1/hostname", "rprivate", "ro")},
		{name: "shm of a read-only root", change: readonly, part: at("/dev/shm"), want: boundAt("/dev/shm", "/pins/s1/shm", "rprivate", "rw")},
		{name: "shm of the host", change: func(c *Container) { security(c).NamespaceOptions.Ipc = runtimeapi.NamespaceMode_NODE }, part: at("/dev/shm"), want: boundAt("/dev/shm", "/dev/shm", "rprivate", "rw")},
		{name: "absent", change: func(c *Container) { c.Files.Hosts = "" }, part: at("/etc/hosts"), want: []specs.Mount(nil)},
		{name: "hostname with users", change: users, part: at("/etc/hostname"), want: mapped("/etc/hostname", "/pins/s1/hostname", "rprivate", "rw")},
		{name: "hosts with users", change: users, part: at("/etc/hosts"), want: mapped("/etc/hosts", "/pins/s1/hosts", "rprivate", "rw")},
		{name: "resolv.conf with users", change: users, part: at("/etc/resolv.conf"), want: mapped("/etc/resolv.conf", "/pins/s1/resolv.conf", "rprivate", "rw")},
		{name: "shm with users", change: users, part: at("/dev/shm"), want: boundAt("/dev/shm", "/pins/s1/shm", "rprivate", "rw")},
	})
}

// TestVolumes has item 15's rules for the image's volumes.
func TestVolumes(t *testing.T) {
	volume := func(paths ...string) func(*Container) {
		return func(c *Container) {
			c.Files, c.Image.Volumes, c.Volumes = Files{}, map[string]struct{}{}, map[string]string{}
			for _, p := range paths {
				c.Image.Volumes[p], c.Volumes[p] = struct{}{}, "/volumes"+p
			}
		}
	}
	mapped := boundAt("/data", "/volumes/data", "rprivate", "rw")
	mapped[0].UIDMappings = []specs.LinuxIDMapping{{HostID: 70000, Size: 65536}}
	mapped[0].GIDMappings = []specs.LinuxIDMapping{{HostID: 80000, Size: 65536}}
	run(t, []row{
		{name: "volume", change: volume("/data"), part: at("/data"), want: boundAt("/data", "/volumes/data", "rprivate", "rw")},
		{name: "relative", change: func(c *Container) {
			volume("data")(c)
			c.Volumes["data"] = "/volumes/data"
		}, part: at("/data"), want: boundAt("/data", "/volumes/data", "rprivate", "rw")},
		{name: "path as the image has it", change: volume("/data/"), part: at("/data/"), want: boundAt("/data/", "/volumes/data/", "rprivate", "rw")},
		{name: "sorted", change: volume("/z", "/b", "/y", "/a", "/x", "/c"), part: func(s *specs.Spec) any { return destinations(s).([]string)[7:] }, want: []string{"/a", "/b", "/c", "/x", "/y", "/z"}},
		{name: "mount of the config", change: func(c *Container) {
			volume("/data/", "data")(c)
			c.Volumes = nil
			mounts(&runtimeapi.Mount{ContainerPath: "/data", HostPath: "/own"})(c)
		}, part: func(s *specs.Spec) any { return destinations(s).([]string)[7:] }, want: []string{"/data"}},
		{name: "without directory", change: func(c *Container) { volume("/data")(c); c.Volumes = nil }, err: `volume "/data" of the image`},
		{name: "with users", change: func(c *Container) { volume("/data")(c); users(c) }, part: at("/data"), want: mapped},
		{name: "over default mounts", change: volume("/dev"), part: destinations, want: []string{"/proc", "/sys", "/sys/fs/cgroup", "/dev"}},
	})
}

// TestImageMounts has item 15's rules for image volumes (KEP-4639).
func TestImageMounts(t *testing.T) {
	image := func(change func(*runtimeapi.Mount)) func(*Container) {
		return func(c *Container) {
			m := &runtimeapi.Mount{
				ContainerPath: "/x", Readonly: true, Image: &runtimeapi.ImageSpec{Image: "sha256:f"}, ImageSubPath: "sub",
				UidMappings: uidMap, GidMappings: gidMap,
			}
			change(m)
			mounts(&runtimeapi.Mount{ContainerPath: "/w", HostPath: "/w"}, m)(c)
			c.ImageMounts = map[int]string{1: "/images/f/sub"}
			c.Handler.IDMapMounts = false // it has no mappings
		}
	}
	same := func(*runtimeapi.Mount) {}
	failed := crierrors.ErrImageVolumeMountFailed.Error()
	run(t, []row{
		{name: "mounted", change: image(same), part: at("/x"), want: boundAt("/x", "/images/f/sub", "rprivate", "ro")},
		{name: "host path", change: image(func(m *runtimeapi.Mount) { m.HostPath = "/h" }), err: failed + `: host_path "/h"`},
		{name: "writable", change: image(func(m *runtimeapi.Mount) { m.Readonly = false }), err: failed + ": image is not mounted read-only"},
		{name: "no reference", change: image(func(m *runtimeapi.Mount) { m.Image.Image = "" }), err: failed + ": image has no reference"},
		{name: "not mounted on the host", change: func(c *Container) { image(same)(c); c.ImageMounts = nil }, err: failed + `: image "sha256:f"`},
	})
	c := simple(t)
	image(func(m *runtimeapi.Mount) { m.Readonly = false })(c)
	if _, err := Build(c); !errors.Is(err, crierrors.ErrImageVolumeMountFailed) {
		t.Errorf("%v does not wrap CRI's error", err)
	}
	c = simple(t)
	c.Handler = Handler{}
	mounts(&runtimeapi.Mount{ContainerPath: "/x", HostPath: "/h", Readonly: true, RecursiveReadOnly: true})(c)
	if _, err := Build(c); !errors.Is(err, crierrors.ErrRROUnsupported) {
		t.Errorf("%v does not wrap CRI's error", err)
	}
}

// TestSysWithUsersOnTheHostNetwork: the kernel forbids a user namespace to mount sysfs of a
// network namespace that it does not own.
func TestSysWithUsersOnTheHostNetwork(t *testing.T) {
	hostNetwork := func(c *Container) {
		c.Sandbox.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	}
	sysfs := []specs.Mount{{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}}}
	bound := specs.Mount{Destination: "/sys", Type: "bind", Source: "/sys", Options: []string{"rbind", "rro", "nosuid", "nodev", "noexec"}}
	run(t, []row{
		{name: "host network", change: hostNetwork, part: at("/sys"), want: sysfs},
		{name: "users", change: users, part: at("/sys"), want: sysfs},
		{name: "both", change: func(c *Container) { users(c); hostNetwork(c) }, part: at("/sys"), want: []specs.Mount{bound}},
		{name: "both, others unchanged", change: func(c *Container) { users(c); hostNetwork(c); c.Files = Files{} }, part: destinations, want: []string{
			"/proc", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/sys/fs/cgroup", "/sys",
		}},
		{name: "both, last", change: func(c *Container) {
			users(c)
			hostNetwork(c)
			mounts(&runtimeapi.Mount{ContainerPath: "/a/b/c/d", HostPath: "/h"}, &runtimeapi.Mount{ContainerPath: "/sys/", HostPath: "/h"})(c)
		}, part: func(s *specs.Spec) any { return s.Mounts[len(s.Mounts)-1] }, want: bound},
		{name: "both, over the config's", change: func(c *Container) {
			users(c)
			hostNetwork(c)
			mounts(&runtimeapi.Mount{ContainerPath: "/sys/", HostPath: "/h"})(c)
		}, part: at("/sys/"), want: []specs.Mount(nil)},
	})
}
