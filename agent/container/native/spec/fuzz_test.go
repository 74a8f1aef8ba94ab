package spec

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hostileConfigs have messages without fields, extreme numbers and paths that are none. Their
// pods have no options.
var hostileConfigs = []string{
	`{"metadata": {}, "mounts": [{}], "devices": [{}], "envs": [{}], "CDIDevices": [{}], "linux": {"resources": {"hugepageLimits": [{}]}, "securityContext": {"runAsUser": {}, "runAsGroup": {}}}}`,
	`{"metadata": {}, "envs": [{}, {"key": "=", "value": "AAAA"}], "linux": {"securityContext": {"supplementalGroups": ["0", "2147483647", "0"], "namespaceOptions": {"pid": 3}}}}`,
	`{"metadata": {}, "mounts": [{"image": {"image": "x"}, "readonly": true}, {"hostPath": "..", "containerPath": "../..", "propagation": 77}, {"hostPath": "/shared", "containerPath": "//dev//", "propagation": 2}]}`,
	`{"metadata": {}, "devices": [{"hostPath": "/dev", "containerPath": "..", "permissions": "??"}, {"hostPath": "/dev/gpio"}]}`,
	`{"metadata": {}, "linux": {"resources": {"cpuPeriod": "-1", "cpuQuota": "-9223372036854775808", "cpuShares": "-1", "memoryLimitInBytes": "9223372036854775807", "memorySwapLimitInBytes": "-1", "oomScoreAdj": "-9223372036854775808", "unified": {"": "\u0000"}}}}`,
	`{"metadata": {}, "linux": {"securityContext": {"runAsUsername": "1:2", "capabilities": {"addCapabilities": ["", "ALL", "\u0000"], "dropCapabilities": ["all"]}, "seccomp": {"profileType": 1}, "apparmor": {"profileType": 2, "localhostRef": "localhost/"}}}}`,
	`{"metadata": {}, "linux": {"securityContext": {"namespaceOptions": {"pid": 1, "usernsOptions": {"uids": [{"hostId": 4294967295, "containerId": 4294967295, "length": 4294967295}], "gids": [{"length": 1}]}}}}}`,
}

// FuzzBuild: no configs break the agent, the same configs give the same spec, the spec's size is
// bounded by that of the configs, and a container gets no privileges that its configs do not have.
func FuzzBuild(f *testing.F) {
	for _, name := range []string{"security", "mounts", "users", "debug"} {
		text, err := os.ReadFile(filepath.Join(configs, name+".golden.json"))
		if err != nil {
			f.Fatal(err)
		}
		var parts map[string]json.RawMessage
		if err := json.Unmarshal(text, &parts); err != nil {
			f.Fatal(err)
		}
		for part, raw := range parts {
			if !strings.HasPrefix(part, "container ") {
				continue
			}
			sandbox, config := &runtimeapi.PodSandboxConfig{}, &runtimeapi.ContainerConfig{}
			if err := protojson.Unmarshal(parts["sandbox"], sandbox); err != nil {
				f.Fatal(err)
			}
			if err := protojson.Unmarshal(raw, config); err != nil {
				f.Fatal(err)
			}
			sandboxBytes, err := proto.Marshal(sandbox)
			if err != nil {
				f.Fatal(err)
			}
			configBytes, err := proto.Marshal(config)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(configBytes, sandboxBytes, "app:audio", "/data")
		}
	}
	for _, text := range hostileConfigs {
		config := &runtimeapi.ContainerConfig{}
		if err := protojson.Unmarshal([]byte(text), config); err != nil {
			f.Fatal(err)
		}
		configBytes, err := proto.Marshal(config)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(configBytes, []byte("\x0a\x00"), "", "") // a sandbox with empty metadata
	}
	f.Fuzz(func(t *testing.T, configBytes, sandboxBytes []byte, user, volume string) {
		sandbox, config := &runtimeapi.PodSandboxConfig{}, &runtimeapi.ContainerConfig{}
		if proto.Unmarshal(configBytes, config) != nil || proto.Unmarshal(sandboxBytes, sandbox) != nil {
			return
		}
		c := simple(t)
		c.Config, c.Sandbox, c.Image.User, c.Image.Cmd = config, sandbox, user, []string{"x"}
		c.Image.Volumes, c.Volumes = map[string]struct{}{volume: {}}, map[string]string{volume: "/volume"}
		c.ImageMounts = map[int]string{0: "/image"}
		c.Namespaces.Target = "/proc/7/ns/pid"
		one, err := Build(c)
		two, again := Build(c)
		if (err == nil) != (again == nil) {
			t.Fatalf("%v and %v", err, again)
		}
		if err != nil {
			return
		}
		text, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		if other, err := json.Marshal(two); err != nil || !bytes.Equal(text, other) {
			t.Fatalf("two specs of one container: %s and %s, %v", text, other, err)
		}
		// A bind mount without a path is some 100 bytes and 2 in protobuf; a capability is
		// in three lists; NUL is 6 bytes in JSON.
		if limit := 16<<10 + 100*(len(configBytes)+len(sandboxBytes)+len(user)+len(volume)); len(text) > limit {
			t.Errorf("%d bytes of JSON, limit %d", len(text), limit)
		}
		sc := config.GetLinux().GetSecurityContext()
		if len(one.Process.Args) == 0 {
			t.Error("no arguments")
		}
		if one.Process.User.UID > maxID || one.Process.User.GID > maxID {
			t.Errorf("user %v", one.Process.User)
		}
		if !sc.GetPrivileged() {
			for _, rule := range one.Linux.Resources.Devices {
				if rule.Allow && (rule.Major == nil || rule.Minor == nil) {
					t.Errorf("device rule %v", rule)
				}
			}
		}
	})
}

// FuzzParseUsers: hostile files break nothing, and no ID is out of range.
func FuzzParseUsers(f *testing.F) {
	f.Add([]byte(passwd), []byte(group), "app")
	f.Add([]byte("a\n:\n::\n:::\n::::::::\n#\n+\n"), []byte("a:x:1:,,\n,\n\x00:\x00:0:\x00"), "")
	f.Add([]byte("a:x:2147483648:-1\nb:x:0x10:1_0"), []byte("g:x:4294967296:a"), "a")
	f.Fuzz(func(t *testing.T, passwd, group []byte, name string) {
		u, err := ParseUsers(bytes.NewReader(passwd), bytes.NewReader(group))
		if err != nil {
			if len(passwd) <= maxUserLine && len(group) <= maxUserLine {
				t.Error(err)
			}
			return
		}
		if lines := bytes.Count(passwd, []byte("\n")) + 1; len(u.users) > lines {
			t.Errorf("%d users of %d lines", len(u.users), lines)
		}
		for _, e := range u.users {
			if e.uid > maxID || e.gid > maxID {
				t.Errorf("entry %v", e)
			}
			if found, ok := u.byName(e.name); !ok || found.name != e.name {
				t.Errorf("user %q is not found", e.name)
			}
			if found, ok := u.byID(e.uid); !ok || found.uid != e.uid {
				t.Errorf("user %d is not found", e.uid)
			}
		}
		for _, gid := range u.groupsOf(name) {
			if gid > maxID {
				t.Errorf("group %d", gid)
			}
		}
		b := &builder{Container: &Container{Users: u}}
		if uid, gid, err := b.parseUser(name); err == nil && (uid > maxID || gid > maxID) {
			t.Errorf("user %q is %d:%d", name, uid, gid)
		}
	})
}
