package policy

import "github.com/tinylet/tinylet/agent/config/evictionapi"

type texts = map[string]string

const mi = 1 << 20

func quantity(amount int64, text string) evictionapi.Value {
	return evictionapi.Value{Amount: amount, Text: text}
}
