package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/source/offline"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
	"github.com/tinylet/tinylet/agent/store/tpmkey"
)

// JournalKeyDocument is what journal-key -o json prints.
type JournalKeyDocument struct {
	// Setting is TinyletConfiguration's that takes the file.
	Setting string `json:"setting"`
	Path    string `json:"path"`
}

// keyOptions are the flags of journal-key.
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
		Short: "Make a key that seals what is kept on the disk of the cluster's pods",
		Long: "Make a key that seals what is kept on the disk of the cluster's pods, Secrets\n" +
			"among it, and say which setting takes it.\n\n" +
			"With --tpm the file has the key as only this board's TPM 2.0 can unseal it: who\n" +
			"takes the disk without the board cannot read the journal. The agent keeps a\n" +
			"counter in the TPM, by which it refuses an older copy of the journal. With --pcrs\n" +
			"the board has to have booted the same, too: PCR 7 is the state of secure boot, 0\n" +
			"to 6 are the firmware, and 8 and later what the boot loader measures. After an\n" +
			"update that changes one, the key cannot be unsealed.\n\n" +
			"Without --tpm the key protects nothing on the card that it is on: keep it on\n" +
			"other storage. With --anchor a file FILE.anchor beside it does what the counter\n" +
			"does. It has to last as long as the key: do not make it in a tmpfs or on a file\n" +
			"system that an update replaces.\n\n" +
			"With a key the agent refuses a journal that is not sealed, and an older copy of\n" +
			"one that is: they may be of somebody else. It puts them aside and begins anew.\n" +
			"--migrate accepts the journal once, with the key that the agent's configuration\n" +
			"names: after a key was set for the first time, or when its anchor was lost. Stop\n" +
			"the agent before that, and start it after. With --anchor it makes the anchor of a\n" +
			"key file as well.\n\n" +
			"A journal whose key is lost cannot be read. Pods still run then and come back\n" +
			"with the API server, but not after a reboot without network, until the journal's\n" +
			"folder is moved away; so is its content lost when --force replaces its key. To\n" +
			"be able to seal the key again, make it without --tpm, keep that file off the\n" +
			"board, and seal it with --from.",
		Example: `  # A key that only this board can use.
  tinylet journal-key --tpm --out /etc/tinylet/journal.tpm

  # Only while secure boot is as it is now.
  tinylet journal-key --tpm --pcrs 7 --out /etc/tinylet/journal.tpm

  # Seal the journal that the agent has kept without a key.
  tinylet journal-key --migrate

  # With a copy of the key, to be kept elsewhere.
  tinylet journal-key --out /run/journal.key
  tinylet journal-key --tpm --from /run/journal.key --out /etc/tinylet/journal.tpm`,
		Args: cobra.NoArgs,
	}
	form := addOutput(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.out, "out", "", "`file` to write, with mode 0600")
	flags.BoolVar(&o.tpm, "tpm", false, "seal the key with this board's TPM 2.0")
	flags.IntSliceVar(&o.pcrs, "pcrs", nil, "`numbers` of PCRs that have to be as they are now, such as 7 or 4,7; with --tpm")
	flags.StringVar(&o.from, "from", "", "`file` with a key to use in place of a new one")
	flags.BoolVar(&o.force, "force", false, "replace the file: a journal that its key has sealed cannot be read any more")
	flags.BoolVar(&o.anchor, "anchor", false, "make FILE.anchor, by which an older copy of the journal is refused; without --tpm")
	flags.BoolVar(&o.migrate, "migrate", false, "accept the journal that there is once, and seal it with the configured key")
	flags.StringVar(&o.config, "config", "", "`file` with the agent's configuration (default /etc/tinylet/config.yaml, or /var/lib/kubelet/config.yaml); with --migrate")
	flags.StringVar(&o.configDir, "config-dir", "", "`folder` with drop-ins, if the agent has one; with --migrate")
	flags.StringVar(&o.rootDir, "root-dir", "", "the agent's `folder`, if it has another; with --migrate")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.migrate {
			return s.migrateJournal(cmd.OutOrStdout(), cmd.ErrOrStderr(), &o, *form)
		}
		made, err := s.makeJournalKey(&o)
		if err != nil {
			return err
		}
		if *form == outputJSON {
			return printJSON(cmd.OutOrStdout(), made)
		}
		return printJournalKey(cmd.OutOrStdout(), made)
	}
	return command(cmd)
}

func (s *system) makeJournalKey(o *keyOptions) (JournalKeyDocument, error) {
	var none JournalKeyDocument
	if o.out == "" {
		return none, errors.New("--out is missing: the file to write, such as /etc/tinylet/journal.tpm")
	}
	if len(o.pcrs) > 0 && !o.tpm {
		return none, errors.New("--pcrs needs --tpm: only a TPM knows what was booted")
	}
	if o.anchor && o.tpm {
		return none, errors.New("--anchor is for a key without --tpm: a TPM has a counter")
	}
	path, err := filepath.Abs(o.out)
	if err != nil {
		return none, fmt.Errorf("make the journal's key: %w", err)
	}
	if _, err := os.Lstat(path); err == nil && !o.force {
		return none, fmt.Errorf("make the journal's key: %s exists, and a journal that its key has sealed cannot be read without it: name another file, or --force replaces it", path)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return none, fmt.Errorf("make the journal's key: %w", err)
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
		return none, fmt.Errorf("write the journal's key: %w", err)
	}
	if o.anchor {
		if err := offline.NewFileAnchor(path + offline.AnchorSuffix).Make(); err != nil {
			return none, err
		}
	}
	return made, nil
}

// key is the key that is to be used, or a new one.
func (o *keyOptions) key() ([]byte, error) {
	if o.from != "" {
		return offline.KeyFile(o.from)()
	}
	key := make([]byte, tpmkey.KeySize)
	_, _ = rand.Read(key) // it never fails (crypto/rand)
	return key, nil
}

func printJournalKey(w io.Writer, made JournalKeyDocument) error {
	where := "Keep it where who takes the disk does not find it."
	if made.Setting == "journalKeyTPMFile" {
		where = "Only this board can unseal it."
	}
	_, err := fmt.Fprintf(w, "Written: %s. %s\n\nTo seal the journal with it, put this into the agent's configuration\n"+
		"(/etc/tinylet/config.yaml) and restart the agent:\n\n"+
		"  apiVersion: tinylet.dev/v1alpha1\n  kind: TinyletConfiguration\n  %s: %s\n", made.Path, where, made.Setting, made.Path)
	return err
}
