package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/server/local"
)

// TestNodeIsClaimedFirst starts an agent that cannot have the node. It must
// fail before it has written a file or changed its own process.
func TestNodeIsClaimedFirst(t *testing.T) {
	for name, row := range map[string]struct {
		prepare func(t *testing.T, socket string)
		want    string
		other   bool
	}{
		"another agent runs": {
			prepare: func(t *testing.T, socket string) {
				c, err := local.ClaimNode(socket, "")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Release)
			},
			want: "stop it first", other: true,
		},
		"the folder cannot be made": {
			prepare: func(t *testing.T, socket string) {
				if err := os.WriteFile(filepath.Dir(socket), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			want: "set socketPath of TinyletConfiguration",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, run := t.TempDir(), t.TempDir()
			l := newLab(t, root)
			l.cfg.Tinylet.SocketPath = filepath.Join(run, "agent", "tinylet.sock")
			l.cfg.Kubelet.ContainerRuntimeEndpoint = "unix://" + run + "/runtime.sock"
			l.cfg.Kubeconfig, l.cfg.Paths.State, l.cfg.Paths.PKI = filepath.Join(run, "kubeconfig"), filepath.Join(root, "state"), run
			row.prepare(t, l.cfg.Tinylet.SocketPath)
			before := ownProcess(t)

			err := Run(t.Context(), l.cfg, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), row.want) || errors.Is(err, local.ErrOtherAgent) != row.other {
				t.Errorf("Run fails with %v", err)
			}
			if entries, err := os.ReadDir(root); err != nil || len(entries) > 0 {
				t.Errorf("something was written before the claim: %v, %v", entries, err)
			}
			if after := ownProcess(t); after != before {
				t.Errorf("the process was changed before the claim: %q, then %q", before, after)
			}
		})
	}
}

// ownProcess is what the agent would change of its process.
func ownProcess(t *testing.T) (text string) {
	t.Helper()
	for _, name := range []string{"oom_score_adj", "cgroup"} {
		data, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text += string(data)
	}
	return text
}

// TestJournalOfAnotherAgent has two agents with two sockets and one state
// folder. The second one must not go on without a journal.
func TestJournalOfAnotherAgent(t *testing.T) {
	dir := t.TempDir()
	joined := func() *config.Config {
		l := newLab(t, dir)
		l.cfg.Kubeconfig, l.cfg.Paths.State, l.cfg.Paths.PKI = filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "state"), dir
		return l.cfg
	}
	log := slog.New(slog.DiscardHandler)
	first, err := assemble(environment{cfg: joined(), runtime: fake.New(fake.Config{}), log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer first.cluster.journal.Close()
	_, err = assemble(environment{cfg: joined(), runtime: fake.New(fake.Config{}), log: log})
	if !errors.Is(err, local.ErrOtherAgent) || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("the second agent starts: %v", err)
	}
}
