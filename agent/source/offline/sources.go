package offline

import (
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/store/tpmkey"
)

// Sources returns where the settings say that the journal's key comes from, and
// the anchor that goes with it; nil is none. Device is the TPM's. A key in the
// kernel's keyring has no anchor, since a keyring does not outlive the boot.
func Sources(tc *config.TinyletConfiguration, device string) (key func() ([]byte, error), anchor journal.Anchor) {
	switch {
	case tc.JournalKeyTPMFile != "":
		return tpmkey.Source(tc.JournalKeyTPMFile, device), tpmkey.NewCounter(tc.JournalKeyTPMFile, device)
	case tc.JournalKeyFile != "":
		return KeyFile(tc.JournalKeyFile), NewFileAnchor(tc.JournalKeyFile + AnchorSuffix)
	case tc.JournalKeyring != "":
		return Keyring(tc.JournalKeyring), nil
	}
	return nil, nil
}
