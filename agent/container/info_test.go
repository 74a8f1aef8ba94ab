package container

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseInfo(t *testing.T) {
	for name, tt := range map[string]struct {
		config, cni string
		want        Info
		fails       bool
	}{
		"no containerd": {},
		"containerd 1.7 as Debian packages it": {
			config: `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"runtimeType":"io.containerd.runc.v2","options":{"SystemdCgroup":false,"BinaryName":""}}}},` +
				`"cni":{"binDir":"/usr/lib/cni","confDir":"/etc/cni/net.d","maxConfNum":1},"systemdCgroup":false,"sandboxImage":"registry.k8s.io/pause:3.8"}`,
			cni: `{"PluginDirs":["/usr/lib/cni"],"PluginConfDir":"/etc/cni/net.d","PluginMaxConfNum":1,"Prefix":"eth","Networks":[]}`,
			want: Info{
				PluginDirs: []string{"/usr/lib/cni"}, ConfigDir: "/etc/cni/net.d", CallsLoopback: true,
				SandboxImage: "registry.k8s.io/pause:3.8", CgroupDriver: "cgroupfs",
			},
		},
		"containerd 2.4 by default": {
			config: `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"runtimeType":"io.containerd.runc.v2","options":{"SystemdCgroup":true}}}},` +
				`"cni":{"binDirs":["/opt/cni/bin"],"confDir":"/etc/cni/net.d","useInternalLoopback":false}}`,
			want: Info{PluginDirs: []string{"/opt/cni/bin"}, ConfigDir: "/etc/cni/net.d", CallsLoopback: true, CgroupDriver: "systemd"},
		},
		"its own loopback, without options": {
			config: `{"containerd":{"defaultRuntimeName":"crun","runtimes":{"crun":{"runtimeType":"io.containerd.runc.v2","options":null}}},` +
				`"cni":{"binDirs":["/opt/cni/bin"],"confDir":"/etc/cni/net.d","useInternalLoopback":true}}`,
			want: Info{PluginDirs: []string{"/opt/cni/bin"}, ConfigDir: "/etc/cni/net.d", CgroupDriver: "cgroupfs"},
		},
		"another shim": {
			config: `{"containerd":{"defaultRuntimeName":"kata","runtimes":{"kata":{"runtimeType":"io.containerd.kata.v2"}}}}`,
		},
		"systemd for all handlers": {
			config: `{"systemdCgroup":true}`,
			want:   Info{CgroupDriver: "systemd"},
		},
		"relative directories": {
			config: `{"cni":{"binDirs":["bin","/a"],"confDir":"net.d"}}`,
			want:   Info{PluginDirs: []string{"/a"}, CallsLoopback: true},
		},
		"no JSON":         {config: `{"registry":"secret`, fails: true},
		"of another form": {cni: `{"PluginDirs":"/a"}`, fails: true},
		"relative directories and no JSON": {
			config: `{"cni":{"binDirs":["bin","/a"],"confDir":"net.d"}}`, cni: `{`,
			want: Info{PluginDirs: []string{"/a"}, CallsLoopback: true}, fails: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseInfo(map[string]string{"config": tt.config, "cniconfig": tt.cni})
			if (err != nil) != tt.fails {
				t.Fatal(err)
			}
			if !cmp.Equal(got, tt.want, cmp.Comparer(func(a, b []string) bool { return cmp.Equal(append([]string{}, a...), append([]string{}, b...)) })) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

func FuzzParseInfo(f *testing.F) {
	f.Add(`{"cni":{"binDirs":["/opt/cni/bin"]}}`, `{"PluginDirs":["/a"]}`)
	f.Fuzz(func(t *testing.T, config, cni string) {
		got, _ := ParseInfo(map[string]string{"config": config, "cniconfig": cni})
		for _, dir := range append(got.PluginDirs, got.ConfigDir) {
			if dir != "" && dir[0] != '/' {
				t.Errorf("a relative directory: %q", dir)
			}
		}
	})
}
