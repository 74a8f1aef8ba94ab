package preflight

import (
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// Journal is what is kept of the cluster's pods on the disk.
type Journal struct {
	// Dir is its folder; "" is not known.
	Dir string
	// Joined reports that the node has or is to have an API server.
	Joined bool
	// Setting is that of TinyletConfiguration, and Key whether one names a key.
	Setting string
	Key     bool
	// Sealed reports whether the journal that is there is sealed; Unknown where
	// there is none.
	Sealed Known
}

func (t tree) journal(j Journal) Journal {
	if j.Dir == "" {
		return j
	}
	switch sealed, err := journal.Sealed(t.path(j.Dir)); {
	case err != nil: // there is none, or a later version's
	case sealed:
		j.Sealed = Yes
	default:
		j.Sealed = No
	}
	return j
}

// judgeJournal has nothing to say of a board alone, which keeps none.
func judgeJournal(f *Facts) []Finding {
	const id = "journal"
	const key = "make a key with `tinylet journal-key --tpm`, or without --tpm on other storage, name it in TinyletConfiguration, and run `tinylet journal-key --migrate`; or set journal: off"
	j := &f.Journal
	switch {
	case !j.Joined && j.Sealed == Unknown:
		return nil
	case j.Setting == config.JournalOff:
		return []Finding{ok(id, "nothing of the cluster's pods is kept on the disk")}
	case j.Sealed == No:
		return []Finding{warn(id, "the Secrets of the cluster's pods are on the disk in clear, in "+j.Dir, key)}
	case j.Key:
		return []Finding{ok(id, "what is kept of the cluster's pods on the disk is sealed")}
	case j.Setting == config.JournalSealed:
		return []Finding{warn(id, "journal is sealed, and no key is configured: after a reboot without network the cluster's pods do not come back", key)}
	case j.Sealed == Yes:
		return []Finding{warn(id, "the journal in "+j.Dir+" is sealed, and no key is configured: it is not used", "configure the key that it was sealed with, or remove it")}
	}
	return []Finding{warn(id, "the Secrets of the cluster's pods will be on the disk in clear, in "+j.Dir, key)}
}
