package logrotate

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// container is a runtime with one container that keeps its log open, as
// containerd does.
type container struct {
	t    *testing.T
	path string
	file *os.File
	next int // number of the next line

	anyway bool // reopens although it fails
	mode   os.FileMode

	mu    sync.Mutex // guards file, too, once it has been opened
	count int        // of ReopenContainerLog
	err   error      // of it
}

func newContainer(t *testing.T) *container {
	t.Helper()
	c := &container{t: t, path: filepath.Join(t.TempDir(), "0.log"), mode: 0o640}
	c.open()
	t.Cleanup(func() { c.file.Close() })
	return c
}

func (c *container) open() {
	c.t.Helper()
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, c.mode)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.file != nil {
		c.file.Close()
	}
	c.file = f
}

func (c *container) ReopenContainerLog(_ context.Context, id string) error {
	if id != "id" {
		c.t.Errorf("reopen log of %q", id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	if c.err == nil || c.anyway {
		c.open()
	}
	return c.err
}

func (c *container) reopened() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

func (c *container) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// write writes numbered lines.
func (c *container) write(lines int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for range lines {
		if _, err := fmt.Fprintf(c.file, "line %d\n", c.next); err != nil {
			c.t.Fatal(err)
		}
		c.next++
	}
}

// lines is what all the log's files hold, in order.
func (c *container) lines() string {
	c.t.Helper()
	rotated, _ := classify(filepath.Base(c.path), c.files())
	var out strings.Builder
	for _, p := range append(rotated, rotatedFile{name: filepath.Base(c.path)}) {
		file := filepath.Join(filepath.Dir(c.path), p.name)
		data, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		if strings.HasSuffix(file, gzSuffix) {
			r, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				c.t.Fatal(err)
			}
			if data, err = io.ReadAll(r); err != nil {
				c.t.Fatal(err)
			}
		}
		out.Write(data)
	}
	return out.String()
}

// wanted are the lines from number first on.
func (c *container) wanted(first int) string {
	var out strings.Builder
	for i := first; i < c.next; i++ {
		fmt.Fprintf(&out, "line %d\n", i)
	}
	return out.String()
}

// files are the names in the log's folder.
func (c *container) files() []string {
	c.t.Helper()
	entries, err := os.ReadDir(filepath.Dir(c.path))
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func (c *container) rotator(maxFiles int) *Rotator {
	c.t.Helper()
	r, err := New(Config{
		Reopen: c, Containers: func() []Log { return []Log{{ID: "id", Path: c.path}} },
		MaxSize: 10 << 20, MaxFiles: maxFiles, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}
