package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tinylet/tinylet/agent/source/objects"
)

// fakeObjects is a Reader of what a test gives it, whatever the namespace.
type fakeObjects struct {
	objects.Reader

	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
	claims     map[string]*v1.PersistentVolumeClaim
	volumes    map[string]*v1.PersistentVolume
	token      string
	expires    time.Time
	bundle     string
}

func found[T any](from map[string]*T, resource, name string) (*T, error) {
	if o := from[name]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

func (o *fakeObjects) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	return found(o.configMaps, "configmap", name)
}

func (o *fakeObjects) Secret(_ context.Context, _, name string) (*v1.Secret, error) {
	return found(o.secrets, "secret", name)
}

func (o *fakeObjects) PersistentVolumeClaim(_ context.Context, _, name string) (*v1.PersistentVolumeClaim, error) {
	return found(o.claims, "persistentvolumeclaim", name)
}

func (o *fakeObjects) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return found(o.volumes, "persistentvolume", name)
}

func (o *fakeObjects) Token(_ context.Context, p *v1.Pod, audience string, life time.Duration) (string, time.Time, error) {
	if o.token == "" {
		return "", time.Time{}, objects.ErrNoServer
	}
	return fmt.Sprintf("%s for %s, %v", o.token, audience, life), o.expires, nil
}

func (o *fakeObjects) TrustBundle(context.Context, *v1.ClusterTrustBundleProjection) (string, error) {
	if o.bundle == "" {
		return "", apierrors.NewNotFound(schema.GroupResource{Resource: "clustertrustbundle"}, "b")
	}
	return o.bundle, nil
}

// some are objects that tests begin with.
func some() *fakeObjects {
	return &fakeObjects{
		configMaps: map[string]*v1.ConfigMap{"c": {
			Data: map[string]string{"a": "text", "b": ""}, BinaryData: map[string][]byte{"bin": {0, 1}},
		}},
		secrets: map[string]*v1.Secret{"s": {Data: map[string][]byte{"user": []byte("me"), "pass": []byte("word")}}},
	}
}

func ofConfigMap(source v1.ConfigMapVolumeSource) v1.Volume {
	source.Name = "c"
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &source}}
}

func ofSecret(source v1.SecretVolumeSource) v1.Volume {
	source.SecretName = "s"
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &source}}
}

func ofProjected(sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}
}

func ofDownward(items ...v1.DownwardAPIVolumeFile) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}}}
}

// setUp sets a pod up below a new root, and takes it down after the test.
func setUp(t *testing.T, root string, p *v1.Pod, in Input) *Result {
	t.Helper()
	v := New(root)
	t.Cleanup(func() {
		if err := v.Teardown(context.Background(), p.UID); err != nil {
			t.Error(err)
		}
	})
	r, err := v.Setup(t.Context(), p, in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// seen returns the files of a directory as a container reads them: the content of
// each, with its mode if that is not 0644.
func seen(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		switch {
		case err != nil:
			out[e.Name()] = err.Error()
		case info.IsDir():
			for name, text := range seen(t, path) {
				out[e.Name()+"/"+name] = text
			}
		default:
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] = string(data)
			if mode := info.Mode().Perm(); mode != 0o644 {
				out[e.Name()] += fmt.Sprintf(" %#o", mode)
			}
		}
	}
	return out
}

func TestConfigVolumes(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	defer unix.Umask(unix.Umask(0o077))
	keys := func(items ...string) (out []v1.KeyToPath) {
		for i := 0; i < len(items); i += 2 {
			out = append(out, v1.KeyToPath{Key: items[i], Path: items[i+1]})
		}
		return out
	}
	field := v1.DownwardAPIVolumeFile{Path: "d/labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}
	limit := v1.DownwardAPIVolumeFile{Path: "d/cpu", Mode: new(int32(0o400)), ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}}
	c := func(s v1.ConfigMapProjection) v1.VolumeProjection {
		s.Name = "c"
		return v1.VolumeProjection{ConfigMap: &s}
	}
	s := func(s v1.SecretProjection) v1.VolumeProjection {
		s.Name = "s"
		return v1.VolumeProjection{Secret: &s}
	}
	for _, tc := range []struct {
		name   string
		volume v1.Volume
		plugin string
		want   map[string]string
	}{
		{"configMap", ofConfigMap(v1.ConfigMapVolumeSource{}), dirConfigMap, map[string]string{"a": "text", "b": "", "bin": "\x00\x01"}},
		{"modes", ofConfigMap(v1.ConfigMapVolumeSource{
			DefaultMode: new(int32(0o400)),
			Items:       []v1.KeyToPath{{Key: "a", Path: "x/y/a"}, {Key: "bin", Path: "x/bin", Mode: new(int32(0o777))}},
		}), dirConfigMap, map[string]string{"x/y/a": "text 0400", "x/bin": "\x00\x01 0777"}},
		{"optional key", ofConfigMap(v1.ConfigMapVolumeSource{Items: keys("none", "x", "a", "y"), Optional: new(true)}), dirConfigMap, map[string]string{"y": "text"}},
		{"optional configMap", v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: new(true),
		}}}, dirConfigMap, map[string]string{}},
		{"secret", ofSecret(v1.SecretVolumeSource{Items: keys("user", "u")}), dirSecret, map[string]string{"u": "me"}},
		{"optional secret", v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{
			SecretName: "none", Optional: new(true), Items: keys("a", "b"),
		}}}, dirSecret, map[string]string{}},
		{"downwardAPI", ofDownward(field, limit), dirDownward, map[string]string{"d/labels": "metadata.labels!", "d/cpu": "limits.cpu? 0400"}},
		{"projected", ofProjected(
			c(v1.ConfigMapProjection{Items: keys("a", "both/c")}), s(v1.SecretProjection{Items: keys("user", "both/s")}),
			v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{field}}},
			v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", Audience: "x", ExpirationSeconds: new(int64(600))}},
			v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "ca"}},
		), dirProjected, map[string]string{
			"both/c": "text", "both/s": "me", "d/labels": "metadata.labels!", "token": "secret for x, 10m0s", "ca": "PEM",
		}},
		{"the later source counts", ofProjected(c(v1.ConfigMapProjection{}), s(v1.SecretProjection{Items: keys("user", "a")})), dirProjected,
			map[string]string{"a": "me", "b": "", "bin": "\x00\x01"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			o := some()
			o.token, o.expires, o.bundle = "secret", time.Now().Add(10*time.Minute), "PEM"
			in := Input{
				Objects:  o,
				Field:    func(path string) (string, error) { return path + "!", nil },
				Resource: func(r *v1.ResourceFieldSelector) (string, error) { return r.Resource + "?", nil },
			}
			p := podWith("u", tc.volume)
			r := setUp(t, root, p, in)
			path := root + "/pods/u/volumes/" + tc.plugin + "/v"
			if r.Paths["v"] != path || !r.ReadOnly["v"] {
				t.Fatalf("got %+v", r)
			}
			if diff := cmp.Diff(tc.want, seen(t, path)); diff != "" {
				t.Error(diff)
			}
			var st unix.Statfs_t
			if err := unix.Statfs(path, &st); err != nil {
				t.Fatal(err)
			}
			if memory := int64(uint32(st.Type)) == unix.TMPFS_MAGIC; memory != (tc.plugin != dirConfigMap) && rootIsDisk(t, root) {
				t.Errorf("in memory: %v", memory)
			}
			checkUnchanged(t, root, p, in, path)
		})
	}
}

func rootIsDisk(t *testing.T, root string) bool {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		t.Fatal(err)
	}
	return int64(uint32(st.Type)) != unix.TMPFS_MAGIC
}

// checkUnchanged checks that a second Setup changes no inode.
func checkUnchanged(t *testing.T, root string, p *v1.Pod, in Input, path string) {
	t.Helper()
	before := inodes(t, path)
	for range 2 {
		if _, err := New(root).Setup(t.Context(), p, in); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, inodes(t, path)); diff != "" {
		t.Errorf("a second set-up wrote: %s", diff)
	}
}

// inodes are the change times of all below a directory.
func inodes(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err := errors.Join(err, unix.Lstat(path, &st)); err != nil {
			return err
		}
		out[path] = fmt.Sprint(st.Ino, st.Ctim)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConfigVolumeErrors(t *testing.T) {
	named := func(path string) v1.Volume {
		return ofConfigMap(v1.ConfigMapVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: path}}})
	}
	twice := v1.VolumeProjection{Secret: &v1.SecretProjection{
		LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Items: []v1.KeyToPath{{Key: "user", Path: "x"}},
	}}
	for _, tc := range []struct {
		name   string
		volume v1.Volume
		in     Input
		want   string
	}{
		{"no configMap", ofConfigMap(v1.ConfigMapVolumeSource{}), Input{Objects: &fakeObjects{}}, `volume "v": configmap "c" not found in namespace "ns"`},
		{"no secret", ofSecret(v1.SecretVolumeSource{}), Input{Objects: &fakeObjects{}}, `secret "s" not found in namespace "ns"`},
		{"no config key", ofConfigMap(v1.ConfigMapVolumeSource{Items: []v1.KeyToPath{{Key: "k", Path: "p"}}}), Input{Objects: some()}, "configmap references non-existent config key: k"},
		{"no secret key", ofSecret(v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "k", Path: "p"}}}), Input{Objects: some()}, "references non-existent secret key: k"},
		{"absolute", named("/etc/passwd"), Input{Objects: some()}, "must be relative"},
		{"way out", named("x/../../y"), Input{Objects: some()}, "must not contain '..'"},
		{"hidden way out", named("./../y"), Input{Objects: some()}, "must not contain '..'"},
		{"own name", named("..data"), Input{Objects: some()}, "must not start with '..'"},
		{"own name behind a dot", named("./..data"), Input{Objects: some()}, "must not start with '..'"},
		{"empty", named("./"), Input{Objects: some()}, "must not be empty"},
		{"long name", named("x/" + strings.Repeat("n", 256)), Input{Objects: some()}, "longer than 255"},
		{"long path", named(strings.Repeat("n/", 3000)), Input{Objects: some()}, "longer than 4095"},
		{"zero byte", named("a\x00b"), Input{Objects: some()}, "zero byte"},
		{"a file and a directory", ofConfigMap(v1.ConfigMapVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: "x"}, {Key: "b", Path: "x/y"}}}), Input{Objects: some()}, `conflicting paths: "x"`},
		{"twice", ofProjected(twice, twice), Input{Objects: some()}, `conflicting duplicate paths: "x"`},
		{"token without a server", ofProjected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "t"}}), Input{Objects: &fakeObjects{}}, "needs an API server"},
		{"no trust bundle", ofProjected(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "t"}}), Input{Objects: &fakeObjects{}}, `clustertrustbundle "b" not found`},
		{"podCertificate", ofProjected(v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{}}), Input{Objects: some()}, "kind projected.podCertificate"},
		{"two sources fail", ofProjected(
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "x"}}},
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "y"}}},
		), Input{Objects: some()}, `secret "x" not found in namespace "ns", configmap "y" not found in namespace "ns"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podWith("u", tc.volume)
			p.Namespace = "ns"
			_, err := New(t.TempDir()).Setup(t.Context(), p, tc.in)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestUnsupportedVolumes(t *testing.T) {
	p := podWith("u", v1.Volume{Name: "n", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}, empty("a"),
		v1.Volume{Name: "i", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "x"}}},
		v1.Volume{Name: "e", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
		v1.Volume{Name: "newer"})
	root := t.TempDir()
	_, err := New(root).Setup(t.Context(), p, Input{})
	if want := `set up volume "n": volumes of kind nfs are not supported; set up volume "e": volumes of kind ephemeral are not supported; set up volume "newer": volumes of kind unknown are not supported`; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(root + "/pods/u/volumes/" + dirEmptyDir + "/a"); err != nil {
		t.Errorf("the others were not made: %v", err)
	}
	p.Spec.Volumes = p.Spec.Volumes[2:3]
	r, err := New(root).Setup(t.Context(), p, Input{})
	if err != nil || r.Images["i"].Reference != "x" || !r.ReadOnly["i"] || len(r.Paths) > 0 {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestRefresh(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	now := time.Now()
	for _, tc := range []struct {
		name                string
		life, left, renewal time.Duration
	}{
		{"new", time.Hour, time.Hour, 48 * time.Minute},
		{"older", time.Hour, 30 * time.Minute, 18 * time.Minute},
		{"at a day", 1000 * time.Hour, 1000 * time.Hour, 24 * time.Hour},
		{"too late", time.Hour, time.Minute, 10 * time.Second},
		{"the clock is wrong", time.Hour, -100000 * time.Hour, 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := renewalTime(now, now.Add(tc.left), tc.life).Sub(now); got != tc.renewal {
				t.Errorf("got %v, want %v", got, tc.renewal)
			}
		})
	}
	o := &fakeObjects{token: "x", expires: now.Add(time.Hour)}
	source := func(path string, life int64) v1.VolumeProjection {
		return v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: path, ExpirationSeconds: &life}}
	}
	r := setUp(t, t.TempDir(), podWith("u", ofProjected(source("a", 3600), source("b", 7200))), Input{Objects: o})
	if got := r.Refresh.Sub(now).Round(time.Second); got != 36*time.Minute {
		t.Errorf("the soonest is in %v", got)
	}
}

// TestOwnership: modes and owners of config volumes with a group and a user.
func TestConfigOwnership(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	if os.Geteuid() != 0 {
		t.Skip("changing owners needs root")
	}
	token := ofProjected(
		v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "c"}}},
	)
	for _, tc := range []struct {
		name        string
		volume      v1.Volume
		user, group *int64
		other       *int64 // the second container's user
		file        string
		want        string
		dir         string
	}{
		{"plain", token, nil, nil, nil, "token", "0:0 644", "0:0 1777"},
		{"one user", token, new(int64(7)), nil, new(int64(7)), "token", "7:0 600", "0:0 1777"},
		{"two users", token, new(int64(7)), nil, new(int64(8)), "token", "0:0 644", "0:0 1777"},
		{"a user and a group", token, new(int64(7)), new(int64(9)), nil, "token", "7:9 640", "0:9 3777"},
		{"a group", token, nil, new(int64(9)), nil, "token", "0:9 640", "0:9 3777"},
		{"others in it", token, new(int64(7)), new(int64(9)), nil, "a", "0:9 644", "0:9 3777"},
		{"configMap", ofConfigMap(v1.ConfigMapVolumeSource{DefaultMode: new(int32(0o400))}), nil, new(int64(9)), nil, "a", "0:9 440", "0:9 2777"},
		{"secret", ofSecret(v1.SecretVolumeSource{DefaultMode: new(int32(0o400))}), nil, new(int64(9)), nil, "user", "0:9 440", "0:9 3777"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := some()
			o.token, o.expires = "x", time.Now().Add(time.Hour)
			p := podWith("u", tc.volume)
			p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: tc.user, FSGroup: tc.group}
			p.Spec.Containers = []v1.Container{{Name: "a"}, {Name: "b", SecurityContext: &v1.SecurityContext{RunAsUser: tc.other}}}
			root := t.TempDir()
			r := setUp(t, root, p, Input{Objects: o})
			owner := func(path string) string {
				var st unix.Stat_t
				if err := unix.Stat(path, &st); err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode&0o7777)
			}
			if got := owner(r.Paths["v"] + "/" + tc.file); got != tc.want {
				t.Errorf("file: got %s, want %s", got, tc.want)
			}
			if got := owner(r.Paths["v"]); got != tc.dir {
				t.Errorf("directory: got %s, want %s", got, tc.dir)
			}
			checkUnchanged(t, root, p, Input{Objects: o}, r.Paths["v"])
		})
	}
}
