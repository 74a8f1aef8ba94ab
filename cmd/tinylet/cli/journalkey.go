package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/source/offline"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
	"github.com/tinylet/tinylet/agent/store/tpmkey"
)

// JournalKeyDocument is the output of journal-key -o json.
type JournalKeyDocument struct {
	// Setting is the field of TinyletConfiguration for Path: journalKeyFile or
	// journalKeyTPMFile.
	Setting string `json:"setting"`
	Path    string `json:"path"`
}

type keyOptions struct {
	out, from string
	tpm       bool
	force     bool
	anchor    bool
	pcrs      []int

	migrate                    bool
	config, configDir, rootDir string
}

func (s *system) journalKey() *cobra.Command {
	var o keyOptions
	cmd := &cobra.Command{
		Use:   "journal-key --out FILE [--tpm] | --migrate",
		Short: "Create a key that seals the journal of the cluster's pods",
		Long: "Create a key that seals the journal of the cluster's pods on disk, and print the\n" +
			"setting for it. The journal contains Secrets.\n\n" +
			"With --tpm, the key is sealed so that only this board's TPM 2.0 can unseal it.\n" +
			"The journal then cannot be read from the disk without the board. The agent keeps\n" +
			"a counter in the TPM and rejects an older copy of the journal. With --pcrs, the\n" +
			"TPM unseals the key only if the given PCRs have the same values as now. PCR 7 is\n" +
			"the state of secure boot, PCRs 0 to 6 are the firmware, and PCRs 8 and later are\n" +
			"measured by the boot loader. The key cannot be unsealed after an update that\n" +
			"changes one of them.\n\n" +
			"Without --tpm, the key does not protect a journal on the same card: store it on\n" +
			"other storage. With --anchor, the file FILE.anchor has the function of the\n" +
			"counter. It must persist as long as the key: do not create it in a tmpfs or on a\n" +
			"file system that an update replaces.\n\n" +
			"With a key, the agent rejects a journal that is not sealed, and an older copy of\n" +
			"a sealed one, because an attacker may have written it. The agent quarantines it\n" +
			"and starts a new journal. --migrate accepts a rejected journal once, with the key\n" +
			"of the agent's configuration. Use it after the first key was configured or the\n" +
			"anchor was lost. Stop the agent before, and start it afterwards. --migrate\n" +
			"--anchor also creates the anchor of a key file.\n\n" +
			"A journal cannot be read without its key. If the key is lost, or --force replaces\n" +
			"it, the content of the journal is lost. Pods keep running and are restored from\n" +
			"the API server, but not after a reboot without network, until the journal's\n" +
			"directory is moved away. To be able to seal the key again, create it without\n" +
			"--tpm, store that file outside the board, and seal it with --from.",
		Example: `  # Create a key that only this board can unseal.
  tinylet journal-key --tpm --out /etc/tinylet/journal.tpm

  # Create a key that can be unsealed only in the current state of secure boot.
  tinylet journal-key --tpm --pcrs 7 --out /etc/tinylet/journal.tpm

  # Seal the journal that the agent has written without a key.
  tinylet journal-key --migrate

  # Create a key file to store elsewhere, and seal the same key with the TPM.
  tinylet journal-key --out /run/journal.key
  tinylet journal-key --tpm --from /run/journal.key --out /etc/tinylet/journal.tpm`,
		Args: cobra.NoArgs,
	}
	form := addOutput(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.out, "out", "", "`file` to write, with mode 0600")
	flags.BoolVar(&o.tpm, "tpm", false, "seal the key with this board's TPM 2.0")
	flags.IntSliceVar(&o.pcrs, "pcrs", nil, "`numbers` of PCRs that must have their current values, such as 7 or 4,7; with --tpm")
	flags.StringVar(&o.from, "from", "", "`file` with an existing key to use")
	flags.BoolVar(&o.force, "force", false, "replace an existing file; a journal that was sealed with its key can no longer be read")
	flags.BoolVar(&o.anchor, "anchor", false, "create FILE.anchor, with which the agent rejects an older copy of the journal; without --tpm")
	flags.BoolVar(&o.migrate, "migrate", false, "accept the existing journal once, and seal it with the configured key")
	flags.StringVar(&o.config, "config", "", "`file` with the agent's configuration (default /etc/tinylet/config.yaml, or /var/lib/kubelet/config.yaml); with --migrate")
	flags.StringVar(&o.configDir, "config-dir", "", "`directory` with drop-ins, if the agent uses one; with --migrate")
	flags.StringVar(&o.rootDir, "root-dir", "", "root `directory` of the agent, if it is not the default; with --migrate")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.migrate {
			return s.migrateJournal(cmd.OutOrStdout(), cmd.ErrOrStderr(), &o, *form)
		}
		made, err := s.makeJournalKey(&o)
		if err != nil {
			return err
		}
		return form.print(cmd.OutOrStdout(), made, func(w io.Writer) error { return printJournalKey(w, made) })
	}
	return command(cmd)
}

func (s *system) makeJournalKey(o *keyOptions) (JournalKeyDocument, error) {
	var none JournalKeyDocument
	if o.out == "" {
		return none, errors.New("--out is missing: the file to write, such as /etc/tinylet/journal.tpm")
	}
	if len(o.pcrs) > 0 && !o.tpm {
		return none, errors.New("--pcrs needs --tpm: only a TPM has PCRs")
	}
	if o.anchor && o.tpm {
		return none, errors.New("--anchor is only for a key without --tpm: a TPM has a counter")
	}
	path, err := filepath.Abs(o.out)
	if err != nil {
		return none, fmt.Errorf("create journal key: %w", err)
	}
	if _, err := os.Lstat(path); err == nil && !o.force {
		return none, fmt.Errorf("create journal key: %s exists, and a journal that was sealed with its key cannot be read without it: pass another file, or replace it with --force", path)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return none, fmt.Errorf("create journal key: %w", err)
	}
	key, err := o.key()
	if err != nil {
		return none, err
	}
	defer clear(key)
	made, text := JournalKeyDocument{Setting: "journalKeyFile", Path: path}, fmt.Appendf(nil, "%x\n", key)
	if o.tpm {
		sealed, err := tpmkey.Seal(s.tpm, key, o.pcrs)
		if err != nil {
			return none, err
		}
		made.Setting, text = "journalKeyTPMFile", sealed.Encode()
	}
	defer clear(text)
	if err := atomicfile.Write(path, text, 0o600); err != nil {
		return none, fmt.Errorf("write journal key: %w", err)
	}
	if o.anchor {
		if err := offline.NewFileAnchor(path + offline.AnchorSuffix).Make(); err != nil {
			return none, err
		}
	}
	return made, nil
}

// key returns the key of the file --from, or a new one.
func (o *keyOptions) key() ([]byte, error) {
	if o.from != "" {
		return offline.KeyFile(o.from)()
	}
	key := make([]byte, tpmkey.KeySize)
	_, _ = rand.Read(key) // it never fails (crypto/rand)
	return key, nil
}

func printJournalKey(w io.Writer, made JournalKeyDocument) error {
	where := "Store it on other storage than the journal."
	if made.Setting == "journalKeyTPMFile" {
		where = "Only this board can unseal it."
	}
	_, err := fmt.Fprintf(w, "Written: %s. %s\n\nTo seal the journal with it, add this to the agent's configuration\n"+
		"(/etc/tinylet/config.yaml) and restart the agent:\n\n"+
		"  apiVersion: tinylet.dev/v1alpha1\n  kind: TinyletConfiguration\n  %s: %s\n", made.Path, where, made.Setting, made.Path)
	return err
}

// migrateJournal accepts a journal that the agent rejects.
func (s *system) migrateJournal(w, warnings io.Writer, o *keyOptions, form output) error {
	if o.out != "" || o.from != "" || o.tpm || o.force || len(o.pcrs) > 0 {
		return errors.New("--migrate uses the key of the agent's configuration: create the key first, without --migrate")
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
	done, err := offline.Migrate(offline.Config{Dir: cfg.Paths.Journal(), Key: key, Anchor: anchor, Log: log})
	if err != nil {
		return err
	}
	if form == outputJSON {
		return printJSON(w, done)
	}
	text := "There is nothing to migrate.\n"
	if done.From != "" {
		text = fmt.Sprintf("The journal of %s was accepted. Start the agent.\n", done.From)
	}
	if done.Quarantined != "" {
		text += fmt.Sprintf("The journal without pods that was in its place is now %s.\n", done.Quarantined)
	}
	_, err = io.WriteString(w, text)
	return err
}

func (s *system) journalConfig(o *keyOptions) (*config.Config, error) {
	set := pflag.NewFlagSet("journal-key", pflag.ContinueOnError)
	flags := config.NewFlags(set)
	for _, f := range []struct{ name, value string }{{"config", o.config}, {"config-dir", o.configDir}, {"root-dir", o.rootDir}} {
		if f.value != "" {
			_ = set.Set(f.name, f.value) // any text is valid
		}
	}
	cfg, _, err := s.load(set, flags)
	if err == nil {
		err = config.Validate(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("load the agent's configuration: %w", err)
	}
	return cfg, nil
}
