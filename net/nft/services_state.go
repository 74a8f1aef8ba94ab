package nft

type wroteServices struct{}
