package podsync

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podlogs"
)

// maxMessage is how much of a termination message counts
// (pkg/kubelet/container/runtime.go, MaxContainerTerminationMessageLength).
const maxMessage = 4096

// messagesOf reads the termination messages of the exited containers, by
// container ID. What cannot be read is left out: a message is a courtesy.
func messagesOf(p *v1.Pod, o *container.Observed) map[string]string {
	var out map[string]string
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.State != container.StateExited {
			continue
		}
		text := ""
		if c.TerminationMessagePath != "" {
			text = readMessage(c.TerminationMessagePath)
		}
		if text == "" && c.ExitCode != 0 && fallsBackToLogs(p, c.Name) {
			text = lastLines(c.LogPath)
		}
		if text != "" {
			if out == nil {
				out = make(map[string]string)
			}
			out[c.ID] = text
		}
	}
	return out
}

// How much of the log stands in for a message
// (pkg/kubelet/container/runtime.go, MaxContainerTerminationMessageLogLines).
const (
	maxFallbackLines = 80
	maxFallbackBytes = 2048
	fallbackLimit    = 5 * time.Second
)

func fallsBackToLogs(p *v1.Pod, name string) bool {
	c, _ := pod.Find(&p.Spec, name)
	return c != nil && c.TerminationMessagePolicy == v1.TerminationMessageFallbackToLogsOnError
}

// lastLines is the end of a container's log.
func lastLines(path string) string {
	if path == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), fallbackLimit)
	defer cancel()
	lines := int64(maxFallbackLines)
	var out bytes.Buffer
	if _, err := podlogs.Read(ctx, podlogs.Source{Path: path}, podlogs.Options{Tail: &lines}, podlogs.Output{Stdout: &out, Stderr: &out}); err != nil {
		return ""
	}
	text := out.Bytes()
	return strings.ToValidUTF8(string(text[max(0, len(text)-maxFallbackBytes):]), "\uFFFD")
}

// readMessage reads a file that a container could write to: it may be
// anything by now, so links are not followed and nothing blocks.
func readMessage(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(f, maxMessage))
	if err != nil {
		return ""
	}
	text := string(data)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return text
}
