package podsync

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/podlogs"
	"github.com/tinylet/tinylet/agent/pod"
)

// maxMessage is the length in bytes at which a termination message is cut
// (pkg/kubelet/container/runtime.go, MaxContainerTerminationMessageLength).
const maxMessage = 4096

// messagesOf returns the termination messages of the exited containers, by
// container ID. It reads each one once, since neither the file nor the log of
// an exited container changes. It omits messages that cannot be read. The next call
// reads those again, except for missing files.
func (f *syncState) messagesOf(ctx context.Context, p *v1.Pod, o *container.Observed) map[string]string {
	known, out := make(map[string]string), make(map[string]string)
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.State != container.StateExited {
			continue
		}
		text, ok := f.messages[c.ID]
		if !ok {
			var err error
			if text, err = messageOf(ctx, p, c); err != nil && !errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		known[c.ID] = text
		if text != "" {
			out[c.ID] = text
		}
	}
	f.messages = known
	return out
}

// messageOf reads the termination message of an exited container, or the end of its log
// if the policy requires that.
func messageOf(ctx context.Context, p *v1.Pod, c *container.Container) (text string, err error) {
	if c.TerminationMessagePath != "" {
		if text, err = readMessage(c.TerminationMessagePath); err != nil {
			return "", err
		}
	}
	if text == "" && c.ExitCode != 0 && fallsBackToLogs(p, c.Name) && c.LogPath != "" {
		return podlogs.Last(ctx, c.LogPath, maxFallbackLines, maxFallbackBytes)
	}
	return text, nil
}

// The maximum number of lines and bytes of a log that replace a message
// (pkg/kubelet/container/runtime.go, MaxContainerTerminationMessageLogLines).
const (
	maxFallbackLines = 80
	maxFallbackBytes = 2048
)

func fallsBackToLogs(p *v1.Pod, name string) bool {
	c, _ := pod.FindContainer(&p.Spec, name)
	return c != nil && c.TerminationMessagePolicy == v1.TerminationMessageFallbackToLogsOnError
}

// readMessage reads a file that a container could write to. The file may have any type, so
// readMessage follows no symbolic link at the path and does not block on opening. It
// returns "" for a file that is not regular. It reads at most maxMessage bytes and
// truncates a longer file to free disk space.
func readMessage(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) {
		f, err = os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", nil
	}
	if info.Size() > maxMessage {
		_ = f.Truncate(maxMessage) // best effort; the message can be read without it
	}
	data, err := io.ReadAll(io.LimitReader(f, maxMessage))
	if err != nil {
		return "", err
	}
	return strings.ToValidUTF8(string(data), "\uFFFD"), nil
}
