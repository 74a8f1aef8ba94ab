package cli

import (
	"bytes"
	"encoding/json"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/config/version"
)

func TestVersion(t *testing.T) {
	for _, args := range [][]string{nil, {"-o", "json"}} {
		var out bytes.Buffer
		cmd := (&system{}).version()
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if args == nil {
			if want := version.Line() + "\n"; out.String() != want {
				t.Errorf("version printed %q, want %q", out.String(), want)
			}
			continue
		}
		var got VersionDocument
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("parse %s: %v", out.String(), err)
		}
		if got.Go != runtime.Version() || got.KubeletVersion != version.Kubelet() {
			t.Errorf("version -o json printed %+v", got)
		}
	}
}

func TestVersionDocument(t *testing.T) {
	got := versionDocument(&debug.BuildInfo{Deps: []*debug.Module{
		{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:a"},
		{Path: "example.org/b", Version: "v1.0.0", Sum: "h1:b", Replace: &debug.Module{Path: "example.org/c", Version: "v1.0.1"}},
	}}).Modules
	want := []ModuleDocument{
		{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:a"},
		{Path: "example.org/c", Version: "v1.0.1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
	if got := versionDocument(nil); got.Modules == nil || got.Go == "" {
		t.Errorf("without module information the document is %+v", got)
	}
}
