package volume

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// configured is a pod with one configMap volume, and its objects.
func configured(data map[string]string) (*v1.Pod, *fakeObjects) {
	o := &fakeObjects{configMaps: map[string]*v1.ConfigMap{"c": {Data: data}}}
	return podWith("u", ofConfigMap(v1.ConfigMapVolumeSource{})), o
}

func TestConfigUpdate(t *testing.T) {
	p, o := configured(map[string]string{"stays": "1", "changes": "1", "goes": "1"})
	root := t.TempDir()
	path := setUp(t, root, p, Input{Objects: o}).Paths["v"]
	o.configMaps = nil
	if _, err := New(root).Setup(t.Context(), p, Input{Objects: o}); err == nil || len(seen(t, path)) != 3 {
		t.Errorf("a deleted configMap: %v, left %v", err, seen(t, path))
	}
	o.configMaps = map[string]*v1.ConfigMap{}
	// A container has a file of its own there, if it can write after all.
	put(t, path+"/own", "x")
	for _, data := range []map[string]string{
		{"stays": "1", "changes": "2", "comes": "2"},
		{"stays": "1"},
		{},
		{"stays": "1", "goes": "1", "changes": "1"},
	} {
		o.configMaps["c"] = &v1.ConfigMap{Data: data}
		if _, err := New(root).Setup(t.Context(), p, Input{Objects: o}); err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(data)
		want["own"] = "x"
		if diff := cmp.Diff(want, seen(t, path)); diff != "" {
			t.Error(diff)
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		// The files, ..data and one directory.
		if len(entries) != len(want)+2 {
			t.Errorf("left: %v", entries)
		}
	}
}

// TestSpoiltFilesAreRepaired: what a power cut or a hand did to the files.
func TestSpoiltFilesAreRepaired(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"emptied":     func(dir string) error { return os.Truncate(dir+"/a", 0) },
		"same size":   func(dir string) error { return os.WriteFile(dir+"/a", []byte("B"), 0o644) },
		"mode":        func(dir string) error { return os.Chmod(dir+"/a", 0o666) },
		"link broken": func(dir string) error { return os.Remove(dir + "/..data") },
		"link wrong": func(dir string) error {
			return errors.Join(os.Remove(dir+"/..data"), os.Symlink("/etc", dir+"/..data"))
		},
		"visible link gone": func(dir string) error { return os.Remove(dir + "/a") },
		"file gone":         func(dir string) error { return os.Remove(dir + "/..data/a") },
		"file added":        func(dir string) error { return os.WriteFile(dir+"/..data/x", nil, 0o644) },
		"file is a link": func(dir string) error {
			return errors.Join(os.Remove(dir+"/..data/a"), os.Symlink("/etc/passwd", dir+"/..data/a"))
		},
		"file is a fifo": func(dir string) error {
			return errors.Join(os.Remove(dir+"/..data/a"), unix.Mkfifo(dir+"/..data/a", 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, o := configured(map[string]string{"a": "A"})
			root := t.TempDir()
			path := setUp(t, root, p, Input{Objects: o}).Paths["v"]
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			if _, err := New(root).Setup(t.Context(), p, Input{Objects: o}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"a": "A"}, seen(t, path)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAfterAKill: each state that a kill can leave, made by hand.
func TestAfterAKill(t *testing.T) {
	for name, leave := range map[string]func(dir string) error{
		"directory half-filled": func(dir string) error { return os.MkdirAll(dir+"/..2026_01_01_00_00_00.1/sub", 0o700) },
		"temporary link":        func(dir string) error { return os.Symlink("..2026_01_01_00_00_00.1", dir+"/..data_tmp") },
		"published, old there": func(dir string) error {
			new := dir + "/..2026_01_01_00_00_00.1"
			return errors.Join(os.Mkdir(new, 0o755), os.WriteFile(new+"/b", []byte("2"), 0o644),
				os.Symlink(filepath.Base(new), dir+"/..data_tmp"), os.Rename(dir+"/..data_tmp", dir+"/..data"))
		},
		"directory without its mode": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			p, o := configured(map[string]string{"a": "1"})
			root := t.TempDir()
			path := setUp(t, root, p, Input{Objects: o}).Paths["v"]
			if err := leave(path); err != nil {
				t.Fatal(err)
			}
			o.configMaps["c"] = &v1.ConfigMap{Data: map[string]string{"b": "2"}}
			if _, err := New(root).Setup(t.Context(), p, Input{Objects: o}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"b": "2"}, seen(t, path)); diff != "" {
				t.Error(diff)
			}
			if entries, err := os.ReadDir(path); err != nil || len(entries) != 3 {
				t.Errorf("left: %v, %v", entries, err)
			}
			if mode := modeOf(t, path).Perm(); mode != 0o777 {
				t.Errorf("mode %v", mode)
			}
		})
	}
}

const killEnv = "VOLUME_TEST_WRITE_BELOW"

// TestKilledWriter kills a process that writes in a loop. It checks that
// containers see a consistent set of files, and that the next writer continues.
func TestKilledWriter(t *testing.T) {
	version := func(n int) map[string]string {
		data := map[string]string{"n": fmt.Sprint(n % 2), fmt.Sprintf("only-%d", n%2): "x"}
		for i := range 20 {
			data[fmt.Sprintf("f%d", i)] = fmt.Sprint(n % 2)
		}
		return data
	}
	if root := os.Getenv(killEnv); root != "" {
		fmt.Println(begun)
		for n := 0; ; n++ {
			p, o := configured(version(n))
			if _, err := New(root).Setup(t.Context(), p, Input{Objects: o}); err != nil {
				t.Fatal(err)
			}
		}
	}
	root := t.TempDir()
	dir := root + "/pods/u/volumes/" + dirConfigMap + "/v"
	written := 0
	for i := range 12 {
		killed(t, "TestKilledWriter", killEnv+"="+root, time.Duration(20000+i*1370)*time.Microsecond)
		if _, err := os.Stat(dir + "/..data"); errors.Is(err, os.ErrNotExist) {
			continue // it did not come that far
		}
		written++
		inside := seen(t, dir+"/..data")
		if diff := cmp.Diff(version(int(inside["n"][0]-'0')), inside); diff != "" {
			t.Errorf("not of one piece: %s", diff)
		}
		p, o := configured(version(i))
		if _, err := New(root).Setup(t.Context(), p, Input{Objects: o}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(version(i), seen(t, dir)); diff != "" {
			t.Error(diff)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != len(version(i))+2 {
			t.Errorf("left: %v, %v", entries, err)
		}
	}
	if written == 0 {
		t.Error("no writer came as far as to write")
	}
}

func TestNestedMounts(t *testing.T) {
	mount := func(name, path string) v1.VolumeMount { return v1.VolumeMount{Name: name, MountPath: path} }
	p, o := configured(map[string]string{"a": "1"})
	p.Spec.InitContainers = []v1.Container{{VolumeMounts: []v1.VolumeMount{mount("v", "/i/"), mount("w", "/i/init")}}}
	p.Spec.Containers = []v1.Container{{VolumeMounts: []v1.VolumeMount{
		mount("v", "/etc/v"), mount("w", "/etc/v/sub/deep"), mount("x", "/etc/v/sub/deep/deeper"), mount("y", "/etc/v-other"),
		mount("z", "/etc/v/../v/dots"), mount("q", "/etc/v/a"),
	}}}
	got := nestedMounts(p, "v")
	slices.Sort(got)
	if diff := cmp.Diff([]string{"a", "dots", "init", "sub/deep"}, got); diff != "" {
		t.Error(diff)
	}
	if got := nestedMounts(podWith("u"), "v"); len(got) > 0 {
		t.Errorf("got %q", got)
	}
	root := t.TempDir()
	path := setUp(t, root, p, Input{Objects: o}).Paths["v"]
	for _, dir := range []string{"sub/deep", "init", "dots"} {
		if info, err := os.Stat(filepath.Join(path, dir)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", dir, err)
		}
	}
	checkUnchanged(t, root, p, Input{Objects: o}, path)
}

func FuzzConfigPath(f *testing.F) {
	for _, path := range []string{"a", "a/b", "../a", "a/../../b", "..data", "./..2", "/", "a//b", ".", "a\x00"} {
		f.Add(path)
	}
	outside := f.TempDir()
	root := filepath.Join(outside, "root")
	f.Fuzz(func(t *testing.T, path string) {
		p := podWith("u", ofConfigMap(v1.ConfigMapVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: path}}}))
		r, err := New(root).Setup(t.Context(), p, Input{Objects: some()})
		if err == nil {
			data, err := os.ReadFile(filepath.Join(r.Paths["v"], path))
			if err != nil || string(data) != "text" {
				t.Errorf("%q: read %q, %v", path, data, err)
			}
		}
		for dir, want := range map[string]int{outside: 1, root: 1, root + "/pods": 1, root + "/pods/u/volumes": 1} {
			if entries, err := os.ReadDir(dir); err == nil && len(entries) > want {
				t.Errorf("%q: wrote into %s", path, dir)
			}
		}
	})
}
