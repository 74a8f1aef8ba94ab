package agent

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/tinylet/tinylet/agent/config"
)

// TestNoSource: the settings cause the only warning about a node without a source of pods.
func TestNoSource(t *testing.T) {
	var log bytes.Buffer
	c := &core{environment: environment{cfg: new(config.Config), log: slog.New(slog.NewTextHandler(&log, nil))}}
	if tasks, err := newSourceTasks(c); len(tasks) > 0 || err != nil || log.Len() > 0 {
		t.Errorf("%d tasks, %v, log %q", len(tasks), err, log.String())
	}
}
