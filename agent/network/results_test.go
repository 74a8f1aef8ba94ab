package network

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRemoveTornResults(t *testing.T) {
	const whole = `{"kind":"cniCacheV1","containerId":"a","result":{"cniVersion":"1.0.0"}}`
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	for name, content := range map[string]string{
		"tinylet-whole-eth0": whole, "lo-legacy-lo": `{"cniVersion":"0.4.0"}`, "tinylet-large-eth0": string(make([]byte, maxResult+1)),
		"tinylet-empty-eth0": "", "tinylet-cut-eth0": whole[:30], "tinylet-zeros-eth0": string(make([]byte, len(whole))),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	RemoveTornResults(dir, slog.New(slog.NewTextHandler(&log, nil)))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"directory", "link", "lo-legacy-lo", "tinylet-large-eth0", "tinylet-whole-eth0"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	if n := bytes.Count(log.Bytes(), []byte("removing torn result")); n != 3 {
		t.Errorf("%d removals are logged:\n%s", n, log.Bytes())
	}
	log.Reset()
	RemoveTornResults(filepath.Join(dir, "absent"), slog.New(slog.NewTextHandler(&log, nil)))
	if log.Len() > 0 {
		t.Errorf("an absent directory is logged: %s", log.Bytes())
	}
}
