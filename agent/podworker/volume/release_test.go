package volume

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReleaseKeepsMessages(t *testing.T) {
	root := t.TempDir()
	v := New(root)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	if err := v.Release(t.Context(), p.UID); err != nil {
		t.Errorf("before there is anything: %v", err)
	}
	paths, err := pathsOf(v.Setup(t.Context(), p, Input{}))
	if err != nil {
		t.Fatal(err)
	}
	message, err := v.TerminationMessage(p.UID, "c")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it is idempotent
		if err := v.Release(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(paths["v"]); !os.IsNotExist(err) {
		t.Errorf("the volume is still there: %v", err)
	}
	if _, err := os.Stat(message); err != nil {
		t.Errorf("the message is gone: %v", err)
	}
	// A pod's directory that is a link leads nowhere.
	outside := filepath.Join(t.TempDir(), dirVolumes)
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(root, dirPods, "u2")); err != nil {
		t.Fatal(err)
	}
	if v.Release(t.Context(), "u2") == nil {
		t.Error("a link was followed")
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("what is outside: %v", err)
	}
}
