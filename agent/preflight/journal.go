package preflight

import (
	"errors"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// Journal is the state of the journal of the cluster's pods on disk.
type Journal struct {
	// Dir is its directory; "" is unknown.
	Dir string
	// Joined reports whether the node has an API server, or is configured for one.
	Joined bool
	// Setting is journal of TinyletConfiguration. Key reports whether a key is
	// configured.
	Setting string
	Key     bool
	// Sealed reports whether the existing journal is sealed; Unknown if there is
	// none.
	Sealed Tristate
	// Format is the error about an existing journal of another format; "" if there is none.
	Format string
}

func (t tree) journal(j Journal) Journal {
	if j.Dir == "" {
		return j
	}
	switch sealed, err := journal.Sealed(t.path(j.Dir)); {
	case err == nil:
		j.Sealed = tristate(sealed)
	case errors.Is(err, journal.ErrVersion):
		j.Format = err.Error()
	}
	return j
}

// checkJournal returns no finding for a standalone node, which has no journal.
func checkJournal(f *Facts) []Finding {
	const id = "journal"
	const key = "create a key with `tinylet journal-key --tpm`, or without --tpm on other storage, set it in TinyletConfiguration, and run `tinylet journal-key --migrate`; or set journal: off"
	j := &f.Journal
	switch {
	case !j.Joined && j.Sealed == Unknown:
		return nil
	case j.Setting == config.JournalOff:
		return []Finding{ok(id, "the journal is off: nothing of the cluster's pods is stored on disk")}
	case j.Format != "":
		return []Finding{fail(id, "the journal in "+j.Dir+" was written by another version of tinylet ("+j.Format+"): after a reboot without network the cluster's pods are not restored",
			"run the version of tinylet that wrote it, or a later one, or move "+j.Dir+" away to start a new one")}
	case j.Sealed == No:
		return []Finding{warn(id, "the Secrets of the cluster's pods are stored unencrypted in "+j.Dir, key)}
	case j.Key:
		return []Finding{ok(id, "the journal of the cluster's pods is sealed")}
	case j.Setting == config.JournalSealed:
		return []Finding{warn(id, "journal is sealed, and no key is configured: after a reboot without network the cluster's pods are not restored", key)}
	case j.Sealed == Yes:
		return []Finding{warn(id, "the journal in "+j.Dir+" is sealed, and no key is configured: it is not used", "configure the key that it was sealed with, or delete the journal")}
	}
	return []Finding{warn(id, "the Secrets of the cluster's pods will be stored unencrypted in "+j.Dir, key)}
}
