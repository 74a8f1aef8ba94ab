package volume

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ofEachKind is a pod with a volume of each kind.
func ofEachKind(t *testing.T, data string) (*v1.Pod, Input) {
	t.Helper()
	p, o := claimed("u", data)
	o.configMaps, o.secrets = some().configMaps, some().secrets
	o.token, o.expires = "secret", time.Now().Add(time.Hour)
	named := func(name string, v v1.Volume) v1.Volume { v.Name = name; return v }
	p.Spec.Volumes = append(p.Spec.Volumes,
		empty("disk"), memory("memory", "1Mi"), host(t.TempDir(), v1.HostPathDirectory),
		named("config", ofConfigMap(v1.ConfigMapVolumeSource{})),
		named("secret", ofSecret(v1.SecretVolumeSource{})),
		named("fields", ofDownward(v1.DownwardAPIVolumeFile{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}})),
		named("token", ofProjected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}})),
	)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(55))}
	return p, Input{Objects: o, Field: func(path string) (string, error) { return path, nil }}
}

// subPaths asks for a subPath of each volume.
func subPaths(t *testing.T, v *Manager, p *v1.Pod, paths map[string]string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, subPath := range map[string]string{
		"v": "a/b", "disk": "a", "memory": "a", "h": "a", "config": "a", "secret": "user", "fields": "name", "token": "token",
	} {
		place, err := v.SubPath(t.Context(), p, name, paths[name], subPath, 3, "c", false)
		if err != nil {
			t.Fatal(err)
		}
		if !same(t, place, filepath.Join(paths[name], subPath)) {
			t.Errorf("%s: %s is not %s", name, place, subPath)
		}
		out[name] = place
	}
	return out
}

// powerCut removes what does not survive a power cut: all mounts, and data in
// memory.
func powerCut(t *testing.T, v *Manager) {
	t.Helper()
	for {
		mounts, err := v.mountsBelow(v.root)
		if err != nil {
			t.Fatal(err)
		}
		if len(mounts) == 0 {
			return
		}
		if err := unix.Unmount(mounts[len(mounts)-1].Mountpoint, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEachKindSurvives(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	root, data := t.TempDir(), t.TempDir()
	p, in := ofEachKind(t, data)
	v := New(root)
	paths := setUp(t, root, p, in).Paths
	places := subPaths(t, v, p, paths)
	for _, name := range []string{"v", "disk", "memory"} {
		put(t, paths[name]+"/kept", name)
	}
	check := func(kept ...string) {
		t.Helper()
		r, err := New(root).Setup(t.Context(), p, in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(paths, r.Paths); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(places, subPaths(t, New(root), p, paths)); diff != "" {
			t.Error(diff)
		}
		for _, name := range kept {
			if got, err := os.ReadFile(paths[name] + "/kept"); err != nil || string(got) != name {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		for name, want := range map[string]string{"secret/user": "me", "config/a": "text", "fields/name": "metadata.name", "token/token": "secret for , 1h0m0s"} {
			volume, file := filepath.Split(name)
			if got, err := os.ReadFile(filepath.Join(paths[filepath.Clean(volume)], file)); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		// 4 in memory, one local, eight subPaths.
		if mounts, err := v.mountsBelow(root); err != nil || len(mounts) != 4+1+8 {
			t.Errorf("%d mounts, %v", len(mounts), err)
		}
	}
	check("v", "disk", "memory") // as after a restart of the agent
	powerCut(t, v)
	check("v", "disk")

	for _, end := range []func() error{
		func() error { return New(root).Release(t.Context(), "u") },
		func() error { return New(root).Teardown(t.Context(), "u") },
	} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if mounts, err := v.mountsBelow(root); err != nil || len(mounts) > 0 {
			t.Errorf("still mounted: %v, %v", mounts, err)
		}
	}
	if _, err := os.Lstat(root + "/pods/u"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if got, err := os.ReadFile(data + "/kept"); err != nil || string(got) != "v" {
		t.Errorf("the local volume's data: %q, %v", got, err)
	}
	if uids, err := v.Orphans(); err != nil || len(uids) > 0 {
		t.Errorf("orphans %v, %v", uids, err)
	}
}

// TestEachKindGoesAfterAPowerCut: nothing is mounted any more, nothing is set up
// again, and the pod is orphaned.
func TestEachKindGoesAfterAPowerCut(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	root, data := t.TempDir(), t.TempDir()
	p, in := ofEachKind(t, data)
	v := New(root)
	subPaths(t, v, p, setUp(t, root, p, in).Paths)
	put(t, data+"/kept", "v")
	powerCut(t, v)
	if uids, err := v.Orphans(); err != nil || !cmp.Equal(uids, []types.UID{"u"}) {
		t.Errorf("orphans %v, %v", uids, err)
	}
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root + "/pods/u"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if _, err := os.Lstat(data + "/kept"); err != nil {
		t.Error(err)
	}
}

const killAnyEnv = "VOLUME_TEST_LIVE_BELOW"

// TestKilledAnywhere kills a process that sets up and tears down a pod with a
// volume of each kind in a loop. The next process must continue from any state.
func TestKilledAnywhere(t *testing.T) {
	if root := os.Getenv(killAnyEnv); root != "" {
		fmt.Println(begun)
		p, in := ofEachKind(t, root+"/data")
		for {
			r, err := New(root).Setup(t.Context(), p, in)
			if err != nil {
				t.Fatal(err)
			}
			subPaths(t, New(root), p, r.Paths)
			if err := errors.Join(New(root).Release(t.Context(), p.UID), New(root).Teardown(t.Context(), p.UID)); err != nil {
				t.Fatal(err)
			}
		}
	}
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	root := t.TempDir()
	put(t, root+"/data/kept", "x")
	v := New(root)
	t.Cleanup(func() { powerCut(t, v) })
	for i := range 20 {
		killed(t, "TestKilledAnywhere", killAnyEnv+"="+root, time.Duration(i*1931)*time.Microsecond)
		if i%2 == 0 { // the pod is wanted still
			p, in := ofEachKind(t, root+"/data")
			r, err := v.Setup(t.Context(), p, in)
			if err != nil {
				t.Fatal(err)
			}
			subPaths(t, v, p, r.Paths)
		}
		if err := v.Teardown(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		if mounts, err := v.mountsBelow(root); err != nil || len(mounts) > 0 {
			t.Fatalf("still mounted: %v, %v", mounts, err)
		}
		if entries, err := os.ReadDir(root + "/pods"); err != nil || len(entries) > 0 {
			t.Fatalf("left: %v, %v", entries, err)
		}
		if _, err := os.Lstat(root + "/data/kept"); err != nil {
			t.Fatal(err)
		}
	}
}

// begun is the first line that a test to be killed prints. The time to the kill
// counts from there, because a busy machine may start the test late.
const begun = "begun"

// killed runs one test of this binary with a variable set, and kills it that
// long after it has begun.
func killed(t *testing.T, test, variable string, after time.Duration) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	child := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	child.Env = append(os.Environ(), variable, "TMPDIR="+t.TempDir())
	child.Stdout, child.Stderr = in, in
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	output := bufio.NewReader(out)
	if line, err := output.ReadString('\n'); err != nil || line != begun+"\n" {
		t.Errorf("it began with %q, %v", line, err)
	}
	time.Sleep(after)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(output) // whatever it said
	if err := child.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("it ended by itself: %v\n%s", err, rest)
	}
}

// TestSubPathOfConfig: a container that starts again gets the new file.
func TestSubPathOfConfig(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	p, o := configured(map[string]string{"a": "1"})
	root := t.TempDir()
	path := setUp(t, root, p, Input{Objects: o}).Paths["v"]
	for _, want := range []string{"1", "2"} {
		o.configMaps["c"] = &v1.ConfigMap{Data: map[string]string{"a": want}}
		if _, err := New(root).Setup(t.Context(), p, Input{Objects: o}); err != nil {
			t.Fatal(err)
		}
		got, err := New(root).SubPath(t.Context(), p, "v", path, "a", 0, "c", true)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(got); err != nil || string(data) != want {
			t.Errorf("got %q, %v", data, err)
		}
	}
}
