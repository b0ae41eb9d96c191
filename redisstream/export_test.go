package redisstream

// PublishDigest is what a server calls the script that stores messages.
var PublishDigest = publishScript.digest

// ScriptTexts are all scripts.
func ScriptTexts() (texts []string) {
	for _, s := range []script{
		publishScript, attachScript, takeScript, delayScript, extendScript, leaveScript, maintainScript, resetScript, statsScript,
	} {
		texts = append(texts, s.text)
	}
	return texts
}
