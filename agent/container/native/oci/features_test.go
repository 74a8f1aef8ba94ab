package oci

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFeatures(t *testing.T) {
	program := func(script string) Program {
		path := filepath.Join(t.TempDir(), "runtime")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
		return Program{path, "--root=/run/x"}
	}
	f, err := program(`[ "$*" = "--root=/run/x features" ] && echo '{"ociVersionMin": "1.0.0", "mountOptions": ["ro", "rro"], "linux": {"mountExtensions": {"idmap": {"enabled": true}}}}'`).Features(t.Context())
	if err != nil || !slices.Contains(f.MountOptions, "rro") || !*f.Linux.MountExtensions.IDMap.Enabled {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := program("echo unknown command; exit 1").Features(t.Context()); err != nil || f.Linux != nil || f.MountOptions != nil {
		t.Errorf("a program without the command: %+v, %v", f, err)
	}
	if f, err := program("echo {").Features(t.Context()); err == nil {
		t.Errorf("a torn document: %+v", f)
	}
	if f, err := (Program{"/absent"}).Features(t.Context()); err == nil {
		t.Errorf("no program: %+v", f)
	}
}
