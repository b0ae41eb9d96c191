package outbox_test

const asRelay = "OUTBOX_TEST_RELAY"

func relayProcess() int { return 0 }
