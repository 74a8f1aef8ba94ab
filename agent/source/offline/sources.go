package offline

import (
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/store/tpmkey"
)

// Sources returns the configured source of the journal's key and the matching
// anchor; nil means none. device is the TPM device. A key in a kernel keyring
// has no anchor, since a keyring does not survive a reboot.
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
