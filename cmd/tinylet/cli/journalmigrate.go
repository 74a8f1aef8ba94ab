package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/source/offline"
)

// MigrationDocument is what journal-key --migrate -o json prints.
type MigrationDocument struct {
	// From is the folder whose journal was accepted, "" if there was nothing to
	// do.
	From string `json:"from"`
	// Quarantined is where a journal without pods lies now that was in its place.
	Quarantined string `json:"aside,omitempty"`
}

// migrateJournal accepts a journal that the agent refuses.
func (s *system) migrateJournal(w, warnings io.Writer, o *keyOptions, form output) error {
	if o.out != "" || o.from != "" || o.tpm || o.force || len(o.pcrs) > 0 {
		return errors.New("--migrate takes the key from the agent's configuration: make it first, without --migrate")
	}
	cfg, err := s.journalConfig(o)
	if err != nil {
		return err
	}
	if o.anchor {
		if cfg.Tinylet.JournalKeyFile == "" {
			return errors.New("--anchor needs journalKeyFile in the agent's configuration")
		}
		if err := offline.NewFileAnchor(cfg.Tinylet.JournalKeyFile + offline.AnchorSuffix).Make(); err != nil {
			return err
		}
	}
	key, anchor := offline.Sources(&cfg.Tinylet, s.tpm)
	log := slog.New(slog.NewTextHandler(warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
	done, err := offline.Migrate(offline.Config{Dir: filepath.Join(cfg.Paths.State, "journal"), Key: key, Anchor: anchor, Log: log})
	if err != nil {
		return err
	}
	if form == outputJSON {
		return printJSON(w, MigrationDocument(done))
	}
	text := "There is nothing to migrate.\n"
	if done.From != "" {
		text = fmt.Sprintf("The journal of %s was accepted. Start the agent.\n", done.From)
	}
	if done.Quarantined != "" {
		text += fmt.Sprintf("The one that was in its place is %s, and has no pods.\n", done.Quarantined)
	}
	_, err = io.WriteString(w, text)
	return err
}

// journalConfig reads the agent's configuration.
func (s *system) journalConfig(o *keyOptions) (*config.Config, error) {
	set, flags := pflag.NewFlagSet("journal-key", pflag.ContinueOnError), config.NewFlags()
	flags.Add(set)
	for _, f := range []struct{ name, value string }{{"config", o.config}, {"config-dir", o.configDir}, {"root-dir", o.rootDir}} {
		if f.value == "" {
			continue
		}
		if err := set.Set(f.name, f.value); err != nil {
			return nil, fmt.Errorf("--%s: %w", f.name, err)
		}
	}
	s.findConfig(set)
	cfg, _, err := flags.Load(machine.Memory(machine.Roots{Proc: filepath.Join(s.root, "proc")}))
	if err == nil {
		err = config.Validate(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("read the agent's configuration: %w", err)
	}
	return cfg, nil
}
