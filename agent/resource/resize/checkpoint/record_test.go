package checkpoint

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

func cpu(amount string) resize.Allocation {
	return resize.Allocation{Containers: map[string]v1.ResourceRequirements{
		"main": {Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount)}},
	}}
}

func open(t *testing.T, path string) (*Store, *strings.Builder) {
	t.Helper()
	var told strings.Builder
	return Open(path, slog.New(slog.NewTextHandler(&told, nil))), &told
}

func TestRecordsOutliveTheAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "allocations")
	s, told := open(t, path)
	if err := s.Drop("one"); err != nil || told.Len() > 0 {
		t.Errorf("without a record: %v, %s", err, told)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made for nothing: %v", err)
	}
	for uid, a := range map[types.UID]string{"one": "100m", "two": "200m"} {
		if err := s.Put(uid, cpu(a)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Drop("two"); err != nil {
		t.Fatal(err)
	}
	s, told = open(t, path)
	if a, ok := s.Get("one"); !ok || !a.Equal(cpu("0.1")) || told.Len() > 0 {
		t.Errorf("read again: %v, %t, %s", a, ok, told)
	}
	if got := s.UIDs(); !slices.Equal(got, []types.UID{"one"}) {
		t.Errorf("UIDs %v", got)
	}
}

func TestWhatIsThereCostsNoWrite(t *testing.T) {
	s, _ := open(t, filepath.Join(t.TempDir(), "allocations"))
	writes := 0
	s.replace = func(string, []byte, fs.FileMode) error { writes++; return nil }
	for range 3 {
		if err := s.Put("one", cpu("100m")); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 1 {
		t.Errorf("%d writes, want 1", writes)
	}
}

// A corrupt or foreign file is logged and replaced.
func TestForeignFiles(t *testing.T) {
	for name, text := range map[string]string{
		"torn":        `{"version":1,"checksum":12,"po`,
		"empty":       "",
		"a kubelet's": `{"data":"{\"entries\":{}}","checksum":1}`,
		"newer":       `{"version":9,"checksum":0,"pods":{}}`,
		"flipped":     `{"version":1,"checksum":1,"pods":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "allocations")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s, told := open(t, path)
			if len(s.UIDs()) > 0 || !strings.Contains(told.String(), "cannot read allocation checkpoint") {
				t.Errorf("%v, %s", s.UIDs(), told)
			}
			if err := s.Put("one", cpu("1")); err != nil {
				t.Fatal(err)
			}
			if s, told = open(t, path); len(s.UIDs()) != 1 || told.Len() > 0 {
				t.Errorf("after a write: %v, %s", s.UIDs(), told)
			}
		})
	}
}

// A failed write changes nothing, and the next write is tried even with the same
// content.
func TestFailedWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "allocations")
	s, _ := open(t, path)
	if err := s.Put("one", cpu("1")); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	s.replace = func(string, []byte, fs.FileMode) error { return full }
	if err := s.Put("one", cpu("2")); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	if a, _ := s.Get("one"); !a.Equal(cpu("1")) {
		t.Errorf("memory has %v", a)
	}
	if again, _ := open(t, path); len(again.UIDs()) != 1 {
		t.Errorf("the file has %v", again.UIDs())
	}
	s.replace = atomicfile.Write
	if err := s.Put("one", cpu("2")); err != nil {
		t.Error(err)
	}
	again, _ := open(t, path)
	if a, _ := again.Get("one"); !a.Equal(cpu("2")) {
		t.Errorf("the file has %v in the end", a)
	}
}
