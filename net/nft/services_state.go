package nft

import "strings"

type wroteServices struct{}

func ofServices(name string) bool { return strings.HasPrefix(name, "service") }
